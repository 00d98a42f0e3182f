package source

import (
	"strings"
	"testing"

	"polder/lib/tick"
)

// A pod's memory contains what its ended containers have left behind, which only its own cgroup has; it is never less than the sum over
// its containers, which a cgroup of version 1 without a hierarchy does not contain.
func TestMemoryOfEndedContainers(t *testing.T) {
	const rules = "rules: [{cgroup: /kubepods/pod*, class: shared, containers: children}]\n"
	for version, files := range map[int]struct{ at, amount, stat string }{
		1: {"sys/fs/cgroup/memory", "memory.usage_in_bytes", "cache 0\ntotal_rss %s\ntotal_cache %s\ntotal_inactive_file %s\n"},
		2: {"sys/fs/cgroup", "memory.current", "anon %s\nfile %s\ninactive_file %s\n"},
	} {
		m := newMachine(t)
		m.version(version)
		if version == 1 {
			m.write(files.at+"/cgroup.procs", "")
			m.write("sys/fs/cgroup/cpuacct/kubepods/pod1/c/cpuacct.usage", "0\n")
		}
		group := func(path, amount, rss, cache, inactive string) {
			m.write(files.at+path+"/"+files.amount, amount+"\n")
			stat := files.stat
			for _, value := range []string{rss, cache, inactive} {
				stat = strings.Replace(stat, "%s", value, 1)
			}
			m.write(files.at+path+"/memory.stat", stat)
			m.write(files.at+path+"/cgroup.procs", "")
		}
		group("/kubepods/pod1/c", "1000", "600", "300", "100")
		group("/kubepods/pod1", "5000", "700", "4000", "200")
		c := m.collector(rules)
		want := func(what string, usage, workingSet, rss, cache float64) {
			t.Helper()
			pod := c.Read(true).Pods[0]
			got := pod.Memory
			if *got.UsageBytes != usage || *got.WorkingSetBytes != workingSet || *got.RSSBytes != rss || *got.CacheBytes != cache {
				t.Errorf("version %d, %s: %s", version, what, marshalled(t, got))
			}
			if got := pod.Containers[0].Memory; *got.UsageBytes != 1000 {
				t.Errorf("version %d, %s: the container's is %s", version, what, marshalled(t, got))
			}
		}
		want("more in the pod", 5000, 4800, 700, 4000)
		group("/kubepods/pod1", "10", "0", "10", "0")
		c = m.collector(rules)
		want("less in the pod", 1000, 900, 600, 300)
	}
}

func marshalled(t *testing.T, v any) string {
	t.Helper()
	text, err := tick.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
