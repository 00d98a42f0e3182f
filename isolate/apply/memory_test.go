package apply

import (
	"strings"
	"testing"

	"polder/lib/tick"
)

// On version 2 a limit below what the kernel could drop to is not written, because it would kill.
func TestLimitDoesNotKill(t *testing.T) {
	for _, c := range []struct {
		name, current, stat string
		limit               int64
		written             bool
	}{
		{"room", "1000000", "anon 1000000\nfile 0\nshmem 0", 1 << 20, true},
		{"caches give way", "100000000", "anon 1000000\nfile 98000000\nshmem 0\nslab_reclaimable 500000", 2 << 20, true},
		{"anonymous memory does not", "100000000", "anon 90000000\nfile 10000000\nshmem 0", 2 << 20, false},
		{"nor does shared memory", "100000000", "anon 1000000\nfile 99000000\nshmem 99000000", 2 << 20, false},
		{"nothing is known of it", "100000000", "", 2 << 20, false},
		{"no limit", "100000000", "", tick.Unlimited, true},
	} {
		h, base := newCopy(t, map[string]string{"a/memory.max": "500000000", "a/memory.current": c.current, "a/memory.stat": c.stat})
		for _, dry := range []bool{true, false} {
			a, _ := newApplier(t, h, func(o *Options) { o.DryRun = dry })
			out := a.Apply([]tick.Cgroup{{Cgroup: "/a", MemoryMaxBytes: new(c.limit)}})
			if (len(out.Writes) == 1) != c.written || c.written == strings.Contains(errorsOf(out), "it would kill processes") {
				t.Errorf("%s, dry run %v: writes %v, errors %s", c.name, dry, out.Writes, errorsOf(out))
			}
		}
		if changed := read(t, base, "a/memory.max") != "500000000"; changed != c.written {
			t.Errorf("%s: changed %v, want %v", c.name, changed, c.written)
		}
	}
}
