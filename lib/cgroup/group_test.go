package cgroup

import (
	"os"
	"testing"
)

// The list of a cgroup without a cpuset is that of the nearest ancestor that has one. As soon as it gets its own, that is read without
// Reopen.
func TestACpusetOfItsOwnCountsAtOnce(t *testing.T) {
	h, base := copyOfV2(t)
	const file = "/cpuset.cpus.effective"
	put(t, base+"/cgroup.controllers", "cpuset cpu memory\n")
	put(t, base+file, "0-7\n")
	put(t, base+"/a/b/c/cpu.stat", "usage_usec 1\n")
	h, err := Detect(h.root)
	if err != nil {
		t.Fatal(err)
	}
	for name, r := range map[string]*Reader{"values": NewReader(h, false), "CPU": NewCPUReader(h)} {
		g, err := r.Open("/a/b/c")
		if err != nil {
			t.Fatal(err)
		}
		defer g.Close()
		expect := func(when, want string) {
			t.Helper()
			for range 2 {
				if err := g.Read(0); err != nil || g.Values.Has&HasCPUSet == 0 || g.Values.CPUSetCPUs != want {
					t.Errorf("%s, %s: %q, %v; want %q", name, when, g.Values.CPUSetCPUs, err, want)
				}
			}
		}
		expect("no cpuset", "0-7")
		put(t, base+"/a"+file, "0-5\n")
		expect("an ancestor's", "0-5")
		put(t, base+"/a/b"+file, "0-3\n")
		expect("a nearer ancestor's", "0-3")
		put(t, base+"/a/b/c"+file, "2\n")
		expect("its own", "2")
		put(t, base+"/a/b"+file, "0-1\n")
		expect("the ancestor's has changed", "2")
		for _, dir := range []string{"/a", "/a/b", "/a/b/c"} {
			if err := os.Remove(base + dir + file); err != nil {
				t.Fatal(err)
			}
		}
	}
}
