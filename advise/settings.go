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
}

// ofKatalyst names the first setting that is policy katalyst's alone; empty where there is none.
func (s *settings) ofKatalyst() string {
	for _, setting := range []struct {
		name  string
		given bool
	}{
		{"reserve-cpu", s.ReserveCPU != nil}, {"reserve-memory", s.ReserveMemory != nil}, {"floor-cpu", s.FloorCPU != nil}, {"hold", s.Hold != nil},
		{"shrink-step", s.ShrinkStep != nil}, {"unknown-cpu", s.UnknownCPU != nil}, {"unknown-memory", s.UnknownMemory != nil}, {"pool-min-cpus", s.PoolMinCPUs != nil}, {"limit", s.Limit != nil},
	} {
		if setting.given {
			return setting.name
		}
	}
	return ""
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
	return &loaded{chosen, merged, koordinator.Settings{ReservedCPUs: merged.ReservedCPUs, BatchClass: merged.BatchClass}, objects}, nil
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
	if name != policyName(katalyst.Policy.Name) {
		if alien := l.given.ofKatalyst(); alien != "" {
			return kind{}, fmt.Errorf("--%s: a setting of policy katalyst, and the policy is %s: leave it out", alien, name)
		}
		if alien := file.ofKatalyst(); alien != "" {
			return kind{}, fmt.Errorf("--config: %s: %s: a setting of policy katalyst, and the policy is %s: leave it out", l.path, alien, name)
		}
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
