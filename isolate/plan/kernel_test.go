package plan

import (
	"fmt"
	"path"
	"strconv"
	"strings"

	"polder/lib/cpus"
)

// kernel simulates the checks of cgroup v1 or v2 that a plan may violate.
type kernel struct {
	version int
	all     cpus.Set
	sets    map[string]cpus.Set
	quota   map[string]string
	period  string
}

func (k *kernel) parentSet(cgroup string) cpus.Set {
	if up := path.Dir(cgroup); up != "/" {
		return k.sets[up]
	}
	return k.all
}

// write behaves like kernel/cgroup/cpuset-v1.c and kernel/sched/core.c.
func (k *kernel) write(w Write) error {
	if w.Name == fileQuota {
		return k.writeQuota(w)
	}
	set, err := cpus.Parse(w.New)
	if err != nil {
		return err
	}
	if k.version == 2 {
		k.sets[w.Cgroup] = set
		return nil
	}
	for name, other := range k.sets {
		if path.Dir(name) == w.Cgroup && !other.IsSubsetOf(set) {
			return fmt.Errorf("EBUSY: %s has %s", name, other)
		}
	}
	if !set.IsSubsetOf(k.parentSet(w.Cgroup)) {
		return fmt.Errorf("EACCES: parent has %s", k.parentSet(w.Cgroup))
	}
	if set.IsEmpty() && !k.sets[w.Cgroup].IsEmpty() {
		return fmt.Errorf("ENOSPC")
	}
	k.sets[w.Cgroup] = set
	return nil
}

func (k *kernel) writeQuota(w Write) error {
	if n, err := strconv.Atoi(w.New); err != nil || n != -1 && n < minQuotaMicroseconds {
		return fmt.Errorf("EINVAL: quota %s", w.New)
	}
	before := k.quota[w.Cgroup]
	k.quota[w.Cgroup] = w.New
	if k.version == 2 {
		return nil
	}
	for name := range k.quota {
		limit := unlimitedShare
		for up := path.Dir(name); up != "/"; up = path.Dir(up) {
			if s, _ := shareOf(k.quota[up], k.period); s != unlimitedShare {
				limit = s
				break
			}
		}
		if s, _ := shareOf(k.quota[name], k.period); s != unlimitedShare && s > limit {
			k.quota[w.Cgroup] = before
			return fmt.Errorf("EINVAL: %s over its parent's", name)
		}
	}
	return nil
}

// effective returns a cgroup's effective set.
func (k *kernel) inForce(cgroup string) cpus.Set {
	if k.version == 1 {
		return k.sets[cgroup]
	}
	limit := k.all
	if up := path.Dir(cgroup); up != "/" {
		limit = k.inForce(up)
	}
	if set := k.sets[cgroup].Intersection(limit); !set.IsEmpty() {
		return set
	}
	return limit
}

// around returns what the caller of Make reads beside the settings: all other files.
func (k *kernel) around(settings []Setting) []Neighbour {
	var out []Neighbour
	if k.version == 2 {
		return nil
	}
	named := map[File]bool{}
	for _, s := range settings {
		named[s.File] = true
	}
	for name, set := range k.sets {
		f := File{Controller: "cpuset", Cgroup: name, Name: fileCPUs}
		if !named[f] {
			out = append(out, Neighbour{File: f, Observed: set.String()})
		}
	}
	for name, quota := range k.quota {
		f := File{Controller: "cpu", Cgroup: name, Name: fileQuota}
		if !named[f] {
			out = append(out, Neighbour{File: f, Observed: quota, Period: k.period})
		}
	}
	return out
}

func (k *kernel) String() string {
	var b strings.Builder
	for name, set := range k.sets {
		fmt.Fprintf(&b, " %s=%s", name, set)
	}
	return b.String()
}

// present fills in what the kernel has.
func (k *kernel) present(settings []Setting) {
	for i := range settings {
		s := &settings[i]
		switch s.Name {
		case fileCPUs:
			s.Observed = k.sets[s.Cgroup].String()
		case fileQuota:
			s.Observed, s.Period = k.quota[s.Cgroup], k.period
		}
	}
}
