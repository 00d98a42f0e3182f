package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"polder/advise/class"
	"polder/advise/harvest"
	"polder/advise/katalyst"
	"polder/advise/koordinator"
	"polder/lib/config"
	"polder/lib/cpus"
	"polder/lib/stage"
)

// settings are what a configuration file may hold; its keys are the flags' names. A nil or empty value is not set.
type settings struct {
	Policy       *policyName `yaml:"policy"`
	ReservedCPUs *cpuList    `yaml:"reserved-cpus"`
	BatchClass   *className  `yaml:"batch-class"`
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
	f.Value(optional[cpuList](&s.ReservedCPUs), "reserved-cpus", "none", "CPUs that belong to no pool (0-1,24), for the system")
	f.Value(optional[className](&s.BatchClass), "batch-class", "idle on a plain host, none for pods", "scheduling class of batch pods' cgroups ("+strings.Join(class.Names, ", ")+"): those in idle run only while nothing beside them wants to")
	f.Category("Policy katalyst")
	f.Value(optional[config.MilliCPU](&s.ReserveCPU), "reserve-cpu", "4, a tenth of a small machine", "CPU kept free for bursts of the shared pods, in cores or as 500m")
	f.Value(optional[config.Bytes](&s.ReserveMemory), "reserve-memory", "5Gi, a tenth of a small machine", "memory kept free for the shared pods")
	f.Value(optional[config.MilliCPU](&s.FloorCPU), "floor-cpu", "4, a tenth of a small machine", "CPU that the reclaimed side keeps however busy the services are")
	f.Value(optional[config.Duration](&s.Hold), "hold", "30s", "how long the shared pool must be larger than needed before it shrinks by a step")
	f.Value(optional[config.MilliCPU](&s.ShrinkStep), "shrink-step", "2", "the most by which the shared pool shrinks in one step")
	f.Value(optional[config.MilliCPU](&s.UnknownCPU), "unknown-cpu", "4", "CPU that stands for a shared container of which nothing is known")
	f.Value(optional[config.Bytes](&s.UnknownMemory), "unknown-memory", "8Gi", "memory that stands for a shared container of which nothing is known")
	f.Value(optional[wholeNumber](&s.PoolMinCPUs), "pool-min-cpus", "8", "with fewer CPUs the reclaimed pods are held by class or quota instead of pools")
	f.Value(optional[limitName](&s.Limit), "limit", "class where there is one", "what holds the reclaimed pods on a machine with too few CPUs for pools (class, quota)")
	f.Category("Policy harvest")
	f.Value(optional[decimal](&s.HarvestPrice), "harvest-price", "2.2", "what a wrong offer costs, in machines that are not offered: a larger one leaves more room for growth")
	f.Value(optional[part](&s.HarvestMargin), "harvest-margin", "2%", "the least growth of the services that room is left for, as a part of the machine")
	f.Value(optional[part](&s.HarvestFirstMargin), "harvest-first-margin", "3%", "the growth that is expected before any was seen")
	f.Value(optional[part](&s.HarvestStep), "harvest-step", "5%", "the most by which the offer rises at once, and falls in a minute while the services have room")
	f.Value(optional[config.Duration](&s.HarvestHold), "harvest-hold", "5m", "how long the offer must be too small before it rises by a step")
	f.Value(optional[config.Duration](&s.HarvestNewPod), "harvest-new-pod", "10m", "for how long a new pod's requests count where it uses less")
	f.Value(optional[part](&s.HarvestBurst), "harvest-burst", "99%", "the part of the services' bursts that idle cores are kept for")
	f.Value(optional[config.Duration](&s.HarvestBurstHold), "harvest-burst-hold", "30s", "how long fewer idle cores must do before batch gets one back")
}

// alien names the first setting that is another policy's alone, and that policy; empty where there is none.
func (s *settings) alien(policy string) (name, whose string) {
	for _, setting := range []struct {
		name, whose string
		given       bool
	}{
		{"reserve-cpu", katalyst.Policy.Name, s.ReserveCPU != nil}, {"reserve-memory", katalyst.Policy.Name, s.ReserveMemory != nil},
		{"floor-cpu", katalyst.Policy.Name, s.FloorCPU != nil}, {"hold", katalyst.Policy.Name, s.Hold != nil},
		{"shrink-step", katalyst.Policy.Name, s.ShrinkStep != nil}, {"unknown-cpu", katalyst.Policy.Name, s.UnknownCPU != nil},
		{"unknown-memory", katalyst.Policy.Name, s.UnknownMemory != nil}, {"pool-min-cpus", katalyst.Policy.Name, s.PoolMinCPUs != nil},
		{"limit", katalyst.Policy.Name, s.Limit != nil},
		{"harvest-price", harvest.Policy.Name, s.HarvestPrice != nil}, {"harvest-margin", harvest.Policy.Name, s.HarvestMargin != nil},
		{"harvest-first-margin", harvest.Policy.Name, s.HarvestFirstMargin != nil}, {"harvest-step", harvest.Policy.Name, s.HarvestStep != nil},
		{"harvest-hold", harvest.Policy.Name, s.HarvestHold != nil}, {"harvest-new-pod", harvest.Policy.Name, s.HarvestNewPod != nil},
		{"harvest-burst", harvest.Policy.Name, s.HarvestBurst != nil}, {"harvest-burst-hold", harvest.Policy.Name, s.HarvestBurstHold != nil},
	} {
		if setting.given && setting.whose != policy {
			return setting.name, setting.whose
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
	return h
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

// optionalValue is a flag of type T that tells whether it was given.
type optionalValue[T any, P interface {
	*T
	stage.Value
}] struct{ into **T }

func optional[T any, P interface {
	*T
	stage.Value
}](into **T) stage.Value {
	return optionalValue[T, P]{into}
}

func (o optionalValue[T, P]) Set(text string) error {
	v := new(T)
	if err := P(v).Set(text); err != nil {
		return err
	}
	*o.into = v
	return nil
}

func (o optionalValue[T, P]) String() string {
	if o.into == nil || *o.into == nil {
		return ""
	}
	return P(*o.into).String()
}

// policyName is the name of one of the policies.
type policyName string

func (p *policyName) Set(text string) error {
	for _, known := range policies {
		if text == known.Name {
			*p = policyName(text)
			return nil
		}
	}
	return fmt.Errorf("%q is no policy: advise --list names them", text)
}

func (p *policyName) String() string { return string(*p) }

func (p *policyName) UnmarshalYAML(n *config.Node) error { return config.SetScalar(n, p.Set) }

// wholeNumber is a positive number.
type wholeNumber int

func (w *wholeNumber) Set(text string) error {
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		return fmt.Errorf("%q is no number from 1", text)
	}
	*w = wholeNumber(n)
	return nil
}

func (w *wholeNumber) String() string { return strconv.Itoa(int(*w)) }

func (w *wholeNumber) UnmarshalYAML(n *config.Node) error { return config.SetScalar(n, w.Set) }

// decimal is a number that is not negative.
type decimal float64

func (d *decimal) Set(text string) error {
	f, err := strconv.ParseFloat(text, 64)
	if err != nil || !(f >= 0 && f <= 1e6) {
		return fmt.Errorf("%q is no number from 0", text)
	}
	*d = decimal(f)
	return nil
}

func (d *decimal) String() string { return strconv.FormatFloat(float64(*d), 'g', -1, 64) }

func (d *decimal) UnmarshalYAML(n *config.Node) error { return config.SetScalar(n, d.Set) }

// part is a part of a whole, written as a percentage.
type part float64

func (p *part) Set(text string) error {
	f, err := strconv.ParseFloat(strings.TrimSuffix(text, "%"), 64)
	if err != nil || !strings.HasSuffix(text, "%") || !(f >= 0 && f <= 100) {
		return fmt.Errorf("%q is no part: want a percentage from 0%% to 100%%", text)
	}
	*p = part(f / 100)
	return nil
}

func (p *part) String() string { return strconv.FormatFloat(100*float64(*p), 'g', -1, 64) + "%" }

func (p *part) UnmarshalYAML(n *config.Node) error { return config.SetScalar(n, p.Set) }

// className is the name of a scheduling class.
type className string

func (c *className) Set(text string) error {
	if !slices.Contains(class.Names, text) {
		return fmt.Errorf("%q is no class: want %s", text, strings.Join(class.Names, ", "))
	}
	*c = className(text)
	return nil
}

func (c *className) String() string { return string(*c) }

func (c *className) UnmarshalYAML(n *config.Node) error { return config.SetScalar(n, c.Set) }

// limitName says what holds the reclaimed pods on a small machine.
type limitName string

func (l *limitName) Set(text string) error {
	if text != katalyst.LimitClass && text != katalyst.LimitQuota {
		return fmt.Errorf("%q: want %s or %s", text, katalyst.LimitClass, katalyst.LimitQuota)
	}
	*l = limitName(text)
	return nil
}

func (l *limitName) String() string { return string(*l) }

func (l *limitName) UnmarshalYAML(n *config.Node) error { return config.SetScalar(n, l.Set) }

// cpuList is a checked CPU list.
type cpuList string

func (c *cpuList) Set(text string) error {
	set, err := cpus.Parse(text)
	*c = cpuList(set.String())
	return err
}

func (c *cpuList) String() string { return string(*c) }

func (c *cpuList) UnmarshalYAML(n *config.Node) error { return config.SetScalar(n, c.Set) }

// live is the settings in force, replaced when the configuration file changes.
type live struct {
	path    string
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
}

// load reads the file.
func (l *live) load() (*loaded, error) {
	var file settings
	var objects config.Objects
	if l.path != "" {
		data, err := config.Load(l.path)
		if err == nil {
			objects, err = config.ReadObjects(l.path, data)
		}
		if err == nil && objects.None() {
			err = config.Decode(l.path, data, &file)
		}
		if err != nil {
			return nil, fmt.Errorf("--config: %w", err)
		}
	}
	chosen, err := l.choose(&file)
	if err != nil {
		return nil, err
	}
	inFile := func(name string) string { return name + " in " + l.path }
	merged := l.given.over(file.over(katalyst.Defaults(), inFile), func(name string) string { return "--" + name })
	return &loaded{
		kind: chosen, katalyst: merged, koordinator: koordinator.Settings{ReservedCPUs: merged.ReservedCPUs, BatchClass: merged.BatchClass},
		harvest: l.given.overHarvest(file.overHarvest(harvest.Defaults())), objects: objects,
	}, nil
}

// choose finds the policy, and refuses settings that it does not have: who gives them expects them to do something.
func (l *live) choose(file *settings) (kind, error) {
	name := policyName(policies[0].Name)
	if file.Policy != nil {
		name = *file.Policy
	}
	if l.given.Policy != nil {
		name = *l.given.Policy
	}
	at := slices.IndexFunc(policies, func(k kind) bool { return k.Name == string(name) }) // policyName.Set has looked
	if alien, whose := l.given.alien(string(name)); alien != "" {
		return kind{}, fmt.Errorf("--%s: a setting of policy %s, and the policy is %s: leave it out", alien, whose, name)
	}
	if alien, whose := file.alien(string(name)); alien != "" {
		return kind{}, fmt.Errorf("--config: %s: %s: a setting of policy %s, and the policy is %s: leave it out", l.path, alien, whose, name)
	}
	return policies[at], nil
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
