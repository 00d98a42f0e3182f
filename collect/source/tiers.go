package source

import (
	"errors"

	"polder/lib/cgroup"
	"polder/lib/kubepods"
	"polder/lib/tick"
)

// Tiers are kubelet's cgroups above the pods'. Without a kubelet there are none, which is no error.
var Tiers = Source{
	Name: "tiers",
	Doc:  "CPU use, CPU list in force, quota and cpu.idle of kubelet's cgroups kubepods, burstable and besteffort",
	New: func(e *Env) Reader {
		cgroupfs, systemd := kubepods.Roots(e.CgroupRoot)
		return &tiersReader{env: e, drivers: []map[string]string{tiersOf(cgroupfs), tiersOf(systemd)}}
	},
}

func tiersOf(root string) map[string]string {
	return map[string]string{
		tick.TierPods:       root,
		tick.TierBurstable:  kubepods.TierBelow(root, tick.TierBurstable),
		tick.TierBestEffort: kubepods.TierBelow(root, tick.TierBestEffort),
	}
}

// tierNames are in the order of the sample.
var tierNames = []string{tick.TierPods, tick.TierBurstable, tick.TierBestEffort}

type tiersReader struct {
	env     *Env
	drivers []map[string]string // their paths by each of kubelet's drivers
	reader  *cgroup.Reader
	saved   map[string]CgroupState // of an earlier run, until the cgroup is found

	tiers []*tier
	out   []tick.Tier
}

// tier is one of them between rounds, and the memory that its part of a sample points into.
type tier struct {
	name string
	container
	quota int64
}

func (t *tiersReader) Read(r *Round) error {
	tree := t.env.pods.tree
	if tree == nil {
		return nil // the cgroup source reports why
	}
	if t.reader == nil {
		t.reader = cgroup.NewCPUReader(tree.h)
	}
	var errs []error
	if r.Rescan {
		if err := t.find(tree); err != nil {
			errs = append(errs, err)
		}
	}
	t.out = t.out[:0]
	for i, tier := range t.tiers {
		if tier == nil || tier.group == nil {
			continue
		}
		err := tier.group.Read(r.Clock.Seconds())
		if errors.Is(err, cgroup.ErrGone) { // the next rescan finds a new one
			tier.close()
			t.tiers[i] = nil
			continue
		}
		if err != nil {
			errs = append(errs, err)
		}
		tier.update(r.Clock.Seconds())
		t.out = append(t.out, tier.asTick())
	}
	if len(t.out) > 0 {
		r.Sample.Tiers = t.out
	}
	return errors.Join(errs...)
}

// find opens those that exist and are not open yet. Where both drivers have left some, those count that contain pods.
func (t *tiersReader) find(tree *tree) error {
	at := t.driver(tree)
	if t.tiers == nil {
		t.tiers = make([]*tier, len(tierNames))
	}
	var errs []error
	for i, name := range tierNames {
		path := at[name]
		if before := t.tiers[i]; before != nil {
			if before.path == path && t.exists(tree, before) {
				if err := before.group.Reopen(); err != nil {
					errs = append(errs, openError(path, err))
				}
				continue
			}
			before.close()
			t.tiers[i] = nil
		}
		if path == "" {
			continue
		}
		if exists, _ := tree.h.Exists("", path); !exists { // a CPU list would be found even so: its parent's
			continue
		}
		group, err := t.reader.Open(path)
		if err != nil {
			errs = append(errs, openError(path, err))
		}
		if group == nil {
			continue
		}
		found := &tier{name: name}
		found.path, found.group, found.inode = path, group, tree.inode(path)
		if s, ok := t.saved[path]; ok && s.Inode == found.inode {
			found.load(s)
		}
		delete(t.saved, path)
		t.tiers[i] = found
	}
	return errors.Join(errs...)
}

// exists reports whether it is still the same cgroup, not another one of its name.
func (t *tiersReader) exists(tree *tree, of *tier) bool {
	if tree.inodes {
		inode := tree.inode(of.path)
		return inode != 0 && inode == of.inode
	}
	exists, err := tree.h.Exists("", of.path)
	return exists && err == nil
}

// driver is the one whose cgroups exist; of two the one with more pods.
func (t *tiersReader) driver(tree *tree) map[string]string {
	var best map[string]string
	mostPods := -1
	for _, at := range t.drivers {
		if exists, _ := tree.h.Exists("", at[tick.TierPods]); !exists {
			continue
		}
		pods := 0
		for path, n := range tree.nodes {
			if n.isPod() && tick.IsBelow(path, at[tick.TierPods]) {
				pods++
			}
		}
		if pods > mostPods {
			best, mostPods = at, pods
		}
	}
	return best
}

func (t *tier) asTick() tick.Tier {
	v := &t.group.Values
	out := tick.Tier{Name: t.name, Cgroup: t.path}
	out.UsageMilliCPU, _ = t.rates()
	if v.Has&cgroup.HasCPUSet != 0 {
		out.CPUSetCPUs = v.CPUSetCPUs
	}
	if milli, known := v.QuotaMilliCPU(); known {
		t.quota = milli
		out.CPUMaxMilliCPU = &t.quota
	}
	out.CPUIdle = v.Has&cgroup.HasIdle != 0 && v.Idle != 0
	return out
}

func (t *tiersReader) Save(s *State) {
	for _, tier := range t.tiers {
		if tier == nil {
			continue
		}
		if s.Tiers == nil {
			s.Tiers = map[string]CgroupState{}
		}
		s.Tiers[tier.path] = tier.save()
	}
}

func (t *tiersReader) Load(s *State) { t.saved = s.Tiers }

func (t *tiersReader) Close() error {
	for _, tier := range t.tiers {
		if tier != nil {
			tier.close()
		}
	}
	return nil
}
