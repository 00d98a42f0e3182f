package main

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"polder/advise/class"
	"polder/advise/disk"
	"polder/advise/guard"
	"polder/advise/harvest"
	"polder/advise/katalyst"
	"polder/advise/koordinator"
	"polder/advise/limits"
	"polder/lib/config"
	"polder/lib/stage"
)

// settings are what a configuration file may hold; its keys are the flags' names. A nil or empty value is not set.
type settings struct {
	Policy        *policyName  `yaml:"policy"`
	ReservedCPUs  *cpuList     `yaml:"reserved-cpus"`
	BatchClass    *className   `yaml:"batch-class"`
	Guard         *guardMode   `yaml:"guard"`
	GuardTarget   *permille    `yaml:"guard-target"`
	GuardMargin   *permille    `yaml:"guard-margin"`
	BatchMemory   *batchMode   `yaml:"batch-memory"`
	ServiceMemory *serviceMode `yaml:"service-memory"`
	BatchDisk     *diskShare   `yaml:"batch-disk"`
	BatchDiskMax  *diskLimits  `yaml:"batch-disk-max"`
	// What follows is policy katalyst's alone.
	ReserveCPU    *config.MilliCPU `yaml:"reserve-cpu"`
	ReserveMemory *config.Bytes    `yaml:"reserve-memory"`
	FloorCPU      *config.MilliCPU `yaml:"floor-cpu"`
	Hold          *config.Duration `yaml:"hold"`
	ShrinkStep    *config.MilliCPU `yaml:"shrink-step"`
	UnknownCPU    *config.MilliCPU `yaml:"unknown-cpu"`
	UnknownMemory *config.Bytes    `yaml:"unknown-memory"`
	PoolMinCPUs   *wholeNumber     `yaml:"pool-min-cpus"`
	Limit         *limitName       `yaml:"limit"`
	// And this policy harvest's.
	HarvestPrice       *decimal         `yaml:"harvest-price"`
	HarvestMargin      *part            `yaml:"harvest-margin"`
	HarvestFirstMargin *part            `yaml:"harvest-first-margin"`
	HarvestStep        *part            `yaml:"harvest-step"`
	HarvestHold        *config.Duration `yaml:"harvest-hold"`
	HarvestNewPod      *config.Duration `yaml:"harvest-new-pod"`
	HarvestBurst       *part            `yaml:"harvest-burst"`
	HarvestBurstHold   *config.Duration `yaml:"harvest-burst-hold"`
}

// flags registers the settings; what stays nil was not given.
func (s *settings) flags(f *stage.Flags) {
	names := make([]string, len(policies))
	for i, p := range policies {
		names[i] = p.Name
	}
	f.Value(optional[policyName](&s.Policy), "policy", policies[0].Name, "how to decide ("+strings.Join(names, ", ")+")")
	f.Words(names...)
	f.Value(optional[cpuList](&s.ReservedCPUs), "reserved-cpus", "none", "`CPUS` of no pool, for the system, as 0-1,24")
	f.Value(optional[className](&s.BatchClass), "batch-class", "idle on a plain host, none for pods", "scheduling class of batch ("+strings.Join(class.Names, ", ")+"; default idle or none)\nThe default is idle on a plain host and none for pods of a cluster. Cgroups in idle run only while nothing beside them wants to.")
	f.Words(class.Names...)
	f.Value(optional[guardMode](&s.Guard), "guard", "on under policy harvest, off under the others", "take from batch while services wait ("+strings.Join(guard.Modes, ", ")+"; default on for harvest)\nIt takes CPUs, quota and memory. It is off by default under the other policies.")
	f.Words(guard.Modes...)
	f.Value(optional[permille](&s.GuardTarget), "guard-target", "what each service showed while batch used little", "how long a service may wait, in thousandths of the time (default learnt)\nThe default is what each service showed while batch used little.")
	f.Value(optional[permille](&s.GuardMargin), "guard-margin", strconv.Itoa(guard.DefaultMarginPermille), "how much longer than learnt, in thousandths of the time\nLearnt is how long each service waited while batch used little.")
	f.Value(optional[batchMode](&s.BatchMemory), "batch-memory", "cap under policy harvest, none under the others", "hold batch's memory to what is free ("+strings.Join(limits.BatchModes, ", ")+"; default cap for harvest)\nIt is held together to what is offered and free. It is none by default under the other policies.")
	f.Words(limits.BatchModes...)
	f.Value(optional[serviceMode](&s.ServiceMemory), "service-memory", "protect under policy harvest, none under the others", "memory.low for services ("+strings.Join(limits.ServiceModes, ", ")+"; default protect for harvest)\nIt covers their working set, on cgroup version 2. It is none by default under the other policies.")
	f.Words(limits.ServiceModes...)
	f.Value(optional[diskShare](&s.BatchDisk), "batch-disk", "idle under policy harvest, none under the others", "batch's share of the disks ("+strings.Join(disk.Shares, ", ")+"; default idle for harvest)\nidle is the smallest weight, so that batch gets what services leave. The kernel heeds weights with the scheduler BFQ or with io.cost.")
	f.Words(disk.Shares...)
	f.Value(optional[diskLimits](&s.BatchDiskMax), "batch-disk-max", "none", "most that batch reads and writes, by disk, in a second\nAs in `all=read:100Mi,write:50Mi;/var/lib/db=reads:200,writes:100`: a disk is a name of /sys/block, a mount point, or all. read and write are bytes, reads and writes operations.")
	f.Category("Policy katalyst")
	f.Value(optional[config.MilliCPU](&s.ReserveCPU), "reserve-cpu", "4, a tenth of a small machine", "`CPU` kept free for bursts of services, as 2 or 500m (default 4)\nOn a small machine the default is a tenth of it.")
	f.Value(optional[config.Bytes](&s.ReserveMemory), "reserve-memory", "5Gi, a tenth of a small machine", "memory kept free for services (default 5Gi)\nOn a small machine the default is a tenth of it.")
	f.Value(optional[config.MilliCPU](&s.FloorCPU), "floor-cpu", "4, a tenth of a small machine", "`CPU` that batch keeps however busy services are (default 4)\nOn a small machine the default is a tenth of it.")
	f.Value(optional[config.Duration](&s.Hold), "hold", "30s", "how long the shared pool is too large before it shrinks")
	f.Value(optional[config.MilliCPU](&s.ShrinkStep), "shrink-step", "2", "the most CPUs by which the shared pool shrinks in one step")
	f.Value(optional[config.MilliCPU](&s.UnknownCPU), "unknown-cpu", "4", "`CPU` of a service's container whose use is unknown")
	f.Value(optional[config.Bytes](&s.UnknownMemory), "unknown-memory", "8Gi", "memory of such a container")
	f.Value(optional[wholeNumber](&s.PoolMinCPUs), "pool-min-cpus", "8", "fewer CPUs have no pools: class or quota holds batch")
	f.Value(optional[limitName](&s.Limit), "limit", "class where there is one", "what holds batch without pools (class, quota; default class)\nThe default is class where there is one. Machines with few CPUs have no pools, see --pool-min-cpus.")
	f.Words(katalyst.LimitClass, katalyst.LimitQuota)
	f.Category("Policy harvest")
	f.Value(optional[decimal](&s.HarvestPrice), "harvest-price", "2.2", "cost of a wrong offer, in unoffered machines\nA larger one leaves more room for growth.")
	f.Value(optional[part](&s.HarvestMargin), "harvest-margin", "2%", "least growth of services to leave room for\nIt is a part of the machine.")
	f.Value(optional[part](&s.HarvestFirstMargin), "harvest-first-margin", "3%", "growth that is expected before any was seen")
	f.Value(optional[part](&s.HarvestStep), "harvest-step", "5%", "the most by which the offer rises at once\nIt is also the most by which it falls in a minute while the services have room.")
	f.Value(optional[config.Duration](&s.HarvestHold), "harvest-hold", "5m", "how long the offer must be too small before it rises")
	f.Value(optional[config.Duration](&s.HarvestNewPod), "harvest-new-pod", "10m", "how long a new pod's requests count where it uses less")
	f.Value(optional[part](&s.HarvestBurst), "harvest-burst", "99%", "part of services' bursts that has idle cores")
	f.Value(optional[config.Duration](&s.HarvestBurstHold), "harvest-burst-hold", "30s", "how long a core is not needed before batch gets it")
}

// ownerOf is the policy that a setting is for; empty where it is for all.
func ownerOf(name string) string {
	switch {
	case slices.Contains([]string{"policy", "reserved-cpus", "batch-class", "guard", "guard-target", "guard-margin", "batch-memory", "service-memory", "batch-disk", "batch-disk-max"}, name):
		return ""
	case strings.HasPrefix(name, "harvest-"):
		return harvest.Policy.Name
	}
	return katalyst.Policy.Name
}

// settingNames are the names of all settings, in their order.
func settingNames() []string {
	t := reflect.TypeFor[settings]()
	names := make([]string, t.NumField())
	for i := range names {
		names[i] = t.Field(i).Tag.Get("yaml")
	}
	return names
}

// values are the settings that are set, by name.
func (s *settings) values() map[string]stage.Value {
	set := map[string]stage.Value{}
	fields := reflect.ValueOf(s).Elem()
	for i, name := range settingNames() {
		if v, ok := fields.Field(i).Interface().(stage.Value); ok && !fields.Field(i).IsNil() {
			set[name] = v
		}
	}
	return set
}

// alien names the first setting that is another policy's alone, and that policy; empty where there is none.
func (s *settings) alien(policy string) (name, whose string) {
	given := s.values()
	for _, name := range settingNames() {
		if whose := ownerOf(name); given[name] != nil && whose != "" && whose != policy {
			return name, whose
		}
	}
	return "", ""
}

// overHarvest lays what s sets over policy harvest's settings.
func (s *settings) overHarvest(h harvest.Settings) harvest.Settings {
	set(&h.Hold, s.HarvestHold)
	set(&h.NewPod, s.HarvestNewPod)
	set(&h.BurstHold, s.HarvestBurstHold)
	for _, setting := range []struct {
		into *float64
		from *part
	}{{&h.Margin, s.HarvestMargin}, {&h.FirstMargin, s.HarvestFirstMargin}, {&h.Step, s.HarvestStep}, {&h.Burst, s.HarvestBurst}} {
		if setting.from != nil {
			*setting.into = float64(*setting.from)
		}
	}
	if s.HarvestPrice != nil {
		h.Price = float64(*s.HarvestPrice)
	}
	if s.ReservedCPUs != nil {
		h.ReservedCPUs = string(*s.ReservedCPUs)
	}
	if s.BatchClass != nil {
		h.BatchClass = string(*s.BatchClass)
	}
	s.overGuard(&h.Guard)
	s.overLimits(&h.Limits)
	s.overDisk(&h.Disk)
	return h
}

// overGuard lays what s sets over the guard's settings.
func (s *settings) overGuard(g *guard.Settings) {
	if s.Guard != nil {
		g.Mode = string(*s.Guard)
	}
	if s.GuardTarget != nil {
		g.TargetPermille = float64(*s.GuardTarget)
	}
	if s.GuardMargin != nil {
		g.MarginPermille = float64(*s.GuardMargin)
	}
}

// overLimits lays what s sets over the limits' settings.
func (s *settings) overLimits(l *limits.Settings) {
	if s.BatchMemory != nil {
		l.Batch = string(*s.BatchMemory)
	}
	if s.ServiceMemory != nil {
		l.Services = string(*s.ServiceMemory)
	}
}

// overDisk lays what s sets over the disks' settings.
func (s *settings) overDisk(d *disk.Settings) {
	if s.BatchDisk != nil {
		d.Share = string(*s.BatchDisk)
	}
	if s.BatchDiskMax != nil {
		d.Limits = *s.BatchDiskMax
	}
}

// over lays what s sets over policy katalyst's settings, and notes for each value where it came from.
func (s *settings) over(k katalyst.Settings, from func(name string) string) katalyst.Settings {
	sources := maps.Clone(k.Sources)
	note := func(name string, given bool) {
		if given {
			if sources == nil {
				sources = map[string]string{}
			}
			sources[name] = from(name)
		}
	}
	note("reserve-cpu", set(&k.ReserveMilliCPU, s.ReserveCPU))
	note("reserve-memory", set(&k.ReserveMemoryBytes, s.ReserveMemory))
	note("floor-cpu", set(&k.FloorMilliCPU, s.FloorCPU))
	note("hold", set(&k.Hold, s.Hold))
	note("shrink-step", set(&k.ShrinkStepMilliCPU, s.ShrinkStep))
	note("unknown-cpu", set(&k.UnknownMilliCPU, s.UnknownCPU))
	note("unknown-memory", set(&k.UnknownMemoryBytes, s.UnknownMemory))
	note("pool-min-cpus", set(&k.PoolMinCPUs, s.PoolMinCPUs))
	if s.ReservedCPUs != nil {
		k.ReservedCPUs = string(*s.ReservedCPUs)
	}
	if s.BatchClass != nil {
		k.BatchClass = string(*s.BatchClass)
	}
	s.overGuard(&k.Guard)
	s.overLimits(&k.Limits)
	s.overDisk(&k.Disk)
	if s.Limit != nil {
		k.Limit = string(*s.Limit)
	}
	k.Sources = sources
	return k
}

func set[T, V ~int | ~int64](into *T, from *V) bool {
	if from != nil {
		*into = T(*from)
	}
	return from != nil
}

// live is the settings in force, replaced when the configuration file changes.
type live struct {
	path    string
	flag    string   // that has the path
	given   settings // on the command line, or by environment variables: they win over the file
	changed atomic.Pointer[loaded]
	runs    atomic.Pointer[kind] // the policy, which is not changed while the tool runs
}

// loaded is what the command line and the file say.
type loaded struct {
	kind        kind
	katalyst    katalyst.Settings
	koordinator koordinator.Settings
	harvest     harvest.Settings
	objects     config.Objects // none where the file has settings
	file        settings       // what the file itself says
	path        string
	data        []byte
}

// at is the place of a setting in the file.
func (l *loaded) at(name string) string {
	return fmt.Sprintf("%s:%d", l.path, config.Lines(l.data)[name])
}

// load reads the file.
func (l *live) load() (*loaded, error) {
	next := loaded{path: l.path}
	if l.path != "" {
		var err error
		if next.data, err = config.Load(l.path); err == nil {
			next.objects, err = config.ReadObjects(l.path, next.data)
		}
		if err == nil && next.objects.None() {
			err = config.Decode(l.path, next.data, &next.file)
		}
		if err != nil {
			return nil, fmt.Errorf("--%s: %w", l.flag, err)
		}
	}
	if err := l.choose(&next); err != nil {
		return nil, err
	}
	inFile := func(name string) string { return name + " in " + l.path }
	next.katalyst = l.given.over(next.file.over(katalyst.Defaults(), inFile), func(name string) string { return "--" + name })
	next.koordinator = koordinator.Settings{ReservedCPUs: next.katalyst.ReservedCPUs, BatchClass: next.katalyst.BatchClass, Guard: next.katalyst.Guard, Limits: next.katalyst.Limits, Disk: next.katalyst.Disk}
	next.harvest = l.given.overHarvest(next.file.overHarvest(harvest.Defaults()))
	return &next, nil
}

// choose finds the policy, and refuses settings that it does not have: who gives them expects them to do something.
func (l *live) choose(next *loaded) error {
	name := policyName(policies[0].Name)
	if next.file.Policy != nil {
		name = *next.file.Policy
	}
	if l.given.Policy != nil {
		name = *l.given.Policy
	}
	at := slices.IndexFunc(policies, func(k kind) bool { return k.Name == string(name) }) // policyName.Set has looked
	if alien, whose := l.given.alien(string(name)); alien != "" {
		return fmt.Errorf("--%s: a setting of policy %s, and the policy is %s: leave it out", alien, whose, name)
	}
	if alien, whose := next.file.alien(string(name)); alien != "" {
		return fmt.Errorf("--%s: %s: %s: a setting of policy %s, and the policy is %s: leave it out", l.flag, next.at(alien), alien, whose, name)
	}
	next.kind = policies[at]
	return nil
}

// watch loads the file again when it changes. A file that is no good is refused and the settings in force stay.
func (l *live) watch(ctx context.Context, s *stage.Session) error {
	if l.path == "" {
		return nil
	}
	return config.Watch(ctx, l.path, s.Log, func() {
		next, err := l.load()
		if runs := l.runs.Load(); err == nil && runs != nil && next.kind.Name != runs.Name {
			err = fmt.Errorf("--config: %s: policy %s: policy %s runs, and another one needs a restart", l.path, next.kind.Name, runs.Name)
		}
		if err != nil {
			s.Log.Error("refused the changed configuration, the old one stays in force", "error", err)
			return
		}
		l.changed.Store(next)
		s.Log.Info("configuration loaded", "path", l.path)
	})
}

// saveEvery is how often the state is saved while the stream runs; it is saved at the end too.
const saveEvery = 10 * time.Second
