package kubernetes

import (
	"slices"
	"testing"
)

func TestContainerID(t *testing.T) {
	for element, want := range map[string]string{
		"abc":                      "abc",
		"cri-containerd-abc.scope": "abc",
		"crio-abc.scope":           "abc",
		"crio-abc":                 "abc",
		"docker-abc.scope":         "abc",
		"crio-conmon-abc.scope":    "",
		"crio-conmon-abc":          "",
		"":                         "",
		"a b":                      "",
	} {
		if got := ContainerID(element); got != want {
			t.Errorf("ContainerID(%q) = %q; want %q", element, got, want)
		}
	}
	for status, want := range map[string]string{"containerd://abc": "abc", "cri-o://abc": "abc", "docker://abc": "abc", "abc": "", "": "", "x://../..": "", "x://a/b": ""} {
		if got := runtimeID(status); got != want {
			t.Errorf("runtimeID(%q) = %q; want %q", status, got, want)
		}
	}
}

func TestMatch(t *testing.T) {
	running := func(name, id string) Container { return Container{Name: name, ID: id, Awaited: true} }
	done := func(name, id string) Container { return Container{Name: name, ID: id} }
	for name, c := range map[string]struct {
		containers []Container
		groups     []Group
		want       []int
	}{
		"the sandbox alone":     {[]Container{running("a", "")}, []Group{{"s", 1}}, []int{Other}},
		"sandbox and container": {[]Container{running("a", "x")}, []Group{{"s", 1}, {"x", 2}}, []int{Other, 0}},
		"systemd": {
			[]Container{running("a", "x"), running("b", "y")},
			[]Group{{"cri-containerd-s.scope", 0}, {"cri-containerd-y.scope", 0}, {"cri-containerd-x.scope", 0}},
			[]int{Other, 1, 0},
		},
		"CRI-O and its monitors": {
			[]Container{running("a", "x")},
			[]Group{{"crio-conmon-x.scope", 3}, {"crio-x.scope", 2}},
			[]int{Other, 0},
		},
		"an init container that has ended": {[]Container{done("i", "w"), running("a", "x")}, []Group{{"s", 1}, {"x", 3}}, []int{Other, 1}},
		"a restart that the status misses": {[]Container{running("a", "old")}, []Group{{"s", 1}, {"new", 9}}, []int{Other, 0}},
		"a start that the status misses": {
			[]Container{running("a", "x"), running("b", "")},
			[]Group{{"new", 9}, {"s", 1}, {"x", 2}},
			[]int{1, Other, 0},
		},
		"two starts": {
			[]Container{running("a", ""), running("b", "")},
			[]Group{{"u", 9}, {"s", 1}, {"v", 8}},
			[]int{Unnamed, Other, Unnamed},
		},
		"a start where the order is hidden": {[]Container{running("a", "")}, []Group{{"u", 0}, {"s", 0}}, []int{Unnamed, Unnamed}},
		"all found, and a debug container": {
			[]Container{running("a", "x"), done("debug", "z")},
			[]Group{{"s", 1}, {"x", 2}, {"z", 3}},
			[]int{Other, 0, 1},
		},
		"CRI-O without a sandbox": {[]Container{running("a", "old")}, []Group{{"crio-new.scope", 9}}, []int{0}},
		"CRI-O, cgroupfs": {
			[]Container{running("a", "")},
			[]Group{{"crio-new", 9}, {"crio-conmon-new", 8}},
			[]int{0, Other},
		},
		"CRI-O, two starts": {
			[]Container{running("a", ""), running("b", "")},
			[]Group{{"crio-u.scope", 3}, {"crio-v.scope", 9}},
			[]int{Unnamed, Unnamed},
		},
		"CRI-O, one of two": {
			[]Container{running("a", ""), running("b", "old")},
			[]Group{{"crio-u.scope", 3}},
			[]int{Unnamed},
		},
		"CRI-O, a start beside a known": {
			[]Container{running("a", ""), running("b", "y")},
			[]Group{{"crio-y.scope", 3}, {"crio-new.scope", 9}},
			[]int{1, 0},
		},
		"CRI-O, its sandbox and a start": {
			[]Container{running("a", "")},
			[]Group{{"crio-s.scope", 1}, {"crio-new.scope", 9}},
			[]int{Unnamed, Unnamed},
		},
		"CRI-O, its sandbox, all found": {
			[]Container{running("a", "x"), done("i", "w")},
			[]Group{{"crio-s.scope", 1}, {"crio-x.scope", 9}},
			[]int{Other, 0},
		},
		"odd names": {[]Container{running("a", "")}, []Group{{"a b", 1}, {"", 2}}, []int{Other, Other}},
		"nothing":   {[]Container{running("a", "x")}, nil, []int{}},
	} {
		p := &Pod{Containers: c.containers}
		if got := p.Match(c.groups); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v; want %v", name, got, c.want)
		}
	}
}

// A virtual machine's only cgroup is that of its containers; an ordinary sandbox is not.
func TestMatchOfAVirtualMachine(t *testing.T) {
	a, b := Container{Name: "a", ID: "x", Awaited: true}, Container{Name: "b", ID: "y", Awaited: true}
	for name, c := range map[string]struct {
		containers []Container
		groups     []Group
		want       []int
	}{
		"a container":                       {[]Container{a}, []Group{{"cri-containerd-s.scope", 1}}, []int{0}},
		"two containers":                    {[]Container{a, b}, []Group{{"cri-containerd-s.scope", 1}}, []int{Unnamed}},
		"another runtime that has a cgroup": {[]Container{a, b}, []Group{{"s", 1}, {"x", 2}}, []int{Other, 0}},
		"both have one":                     {[]Container{a, b}, []Group{{"s", 1}, {"x", 2}, {"y", 3}}, []int{Other, 0, 1}},
	} {
		p := &Pod{Containers: c.containers, HasRuntimeClass: true}
		if got := p.Match(c.groups); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v; want %v", name, got, c.want)
		}
	}
}

func FuzzNames(f *testing.F) {
	for _, seed := range []string{"pod1", "kubepods-pod1_2.slice", "crio-conmon-1.scope", "containerd://x", "-", "pod.slice"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, s string) {
		p := &Pod{Containers: []Container{{ID: runtimeID(s), Awaited: true}}}
		for _, of := range p.Match([]Group{{s, 1}, {s + "x", 2}}) {
			if of < Unnamed || of > 0 {
				t.Fatalf("Match: %d", of)
			}
		}
	})
}
