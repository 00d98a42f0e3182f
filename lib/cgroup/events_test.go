package cgroup

import "testing"

func TestMemoryEvents(t *testing.T) {
	for _, c := range []struct {
		text string
		want MemoryEvents
		bad  bool
	}{
		{"low 9\nhigh 1\nmax 2\noom 3\noom_kill 4\noom_group_kill 7\n", MemoryEvents{1, 2, 3, 4}, false},
		{"high 18446744073709551615\nmax 0\noom 0\noom_kill 0", MemoryEvents{High: 1<<64 - 1}, false},
		{"", MemoryEvents{}, true},
		{"high 1\nmax 2\noom 3\n", MemoryEvents{}, true},
		{"high 1\nhigh 1\nmax 2\noom 3\noom_kill 4\n", MemoryEvents{}, true},
		{"high -1\nmax 2\noom 3\noom_kill 4\n", MemoryEvents{}, true},
		{"high 1 2\nmax 2\noom 3\noom_kill 4\n", MemoryEvents{}, true},
	} {
		var got MemoryEvents
		if err := got.Parse([]byte(c.text)); (err != nil) != c.bad || got != c.want {
			t.Errorf("%q: %+v, %v", c.text, got, err)
		}
	}
}

// Refaults are in two lines, in one before Linux 5.9, and unknown before 3.15.
func TestRefaults(t *testing.T) {
	const begin = "anon 4096\nfile 8192\nkernel 100\ninactive_file 4096\n"
	for _, c := range []struct {
		rest string
		want uint64
		has  bool
		bad  bool
	}{
		{"workingset_nodes 3\nworkingset_refault_anon 5\nworkingset_refault_file 7\nworkingset_activate_anon 100\n", 12, true, false},
		{"workingset_refault 5\nworkingset_activate 100\n", 5, true, false},
		{"workingset_refault_anon 18446744073709551615\nworkingset_refault_file 7\n", 1<<64 - 1, true, false},
		{"pgfault 3\n", 0, false, false},
		{"workingset_refault_anon x\n", 0, false, true},
	} {
		var v Values
		err := v.ParseMemoryStatV2([]byte(begin + c.rest))
		if (err != nil) != c.bad || v.RefaultPages != c.want || (v.Has&HasRefaults != 0) != c.has {
			t.Errorf("%q: %d, has %t, %v", c.rest, v.RefaultPages, v.Has&HasRefaults != 0, err)
		}
		if v.Has&HasMemoryStat == 0 || v.RSSBytes != 4096 {
			t.Errorf("%q: the rest was not read", c.rest)
		}
	}
}
