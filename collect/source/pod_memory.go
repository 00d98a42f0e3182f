package source

import (
	"errors"

	"polder/lib/cgroup"
)

// podMemory is the memory of a pod's own cgroup between rounds. It contains what no container's cgroup has any more: memory that ended
// containers have left behind, such as the pages of a volume in memory.
type podMemory struct {
	group *cgroup.Group // nil where there is none or it was removed
	at    float64       // when it was read last, in seconds
}

// openMemory opens the files of a pod that has none open.
func (t *tree) openMemory(m *podMemory, path string) {
	if m == nil || m.group != nil {
		return
	}
	if t.memoryReader == nil {
		t.memoryReader = cgroup.NewMemoryReader(t.h)
	}
	group, err := t.memoryReader.Open(path)
	if err != nil {
		t.errs = append(t.errs, openError(path, err))
	}
	m.group = group
}

// readMemory reads the files again if the last reading is old enough: what containers have left changes seldom.
func (t *tree) readMemory(m *podMemory, seconds float64) {
	if m == nil || m.group == nil {
		return
	}
	if elapsed := seconds - m.at; elapsed > 0 && elapsed < ioEvery {
		return
	}
	m.at = seconds
	switch err := m.group.Read(seconds); {
	case errors.Is(err, cgroup.ErrGone):
		m.close()
	case err != nil:
		t.errs = append(t.errs, err)
	}
}

// raise raises the sums over the containers to what the pod's own cgroup has.
func (m *podMemory) raise(bytes, workingSet, rss, cache *sum) {
	if m == nil || m.group == nil {
		return
	}
	v := &m.group.Values
	for _, value := range []struct {
		of   *sum
		has  cgroup.Has
		read uint64
	}{
		{bytes, cgroup.HasMemory, v.MemoryBytes},
		{workingSet, cgroup.HasMemory | cgroup.HasMemoryStat, v.WorkingSetBytes()},
		{rss, cgroup.HasMemoryStat, v.RSSBytes},
		{cache, cgroup.HasMemoryStat, v.CacheBytes},
	} {
		if v.Has&value.has == value.has {
			value.of.value, value.of.known = max(value.of.value, float64(value.read)), true
		}
	}
}

func (m *podMemory) close() {
	if m != nil && m.group != nil {
		m.group.Close()
		m.group = nil
	}
}
