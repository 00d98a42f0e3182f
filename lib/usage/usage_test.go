package usage

import (
	"testing"

	"polder/lib/tick"
)

func TestCapacity(t *testing.T) {
	of := func(milli float64) *tick.Resources { return &tick.Resources{MilliCPU: &milli} }
	for _, tt := range []struct {
		name   string
		sample *tick.Sample
		want   float64 // 0 for unknown
	}{
		{"no sample", nil, 0},
		{"nothing known", &tick.Sample{}, 0},
		{"online CPUs", &tick.Sample{Topology: &tick.Topology{CPUs: "0-2,5"}, Capacity: of(8000)}, 4000},
		{"a list that is none", &tick.Sample{Topology: &tick.Topology{CPUs: "x"}, Capacity: of(8000)}, 8000},
		{"an empty list", &tick.Sample{Topology: &tick.Topology{}, Capacity: of(8000)}, 8000},
		{"the cluster's capacity", &tick.Sample{Capacity: of(8000), Allocatable: of(7000)}, 8000},
		{"what is allocatable", &tick.Sample{Capacity: of(0), Allocatable: of(7000)}, 7000},
		{"negative", &tick.Sample{Capacity: of(-1)}, 0},
	} {
		got := Capacity(tt.sample)
		if (got == nil) != (tt.want == 0) || got != nil && *got != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}

func TestTaken(t *testing.T) {
	for _, tt := range []struct {
		name       string
		use, steal *float64
		want       float64 // negative for unknown
	}{
		{"nothing known", nil, nil, -1},
		{"only the steal time", nil, new(500.0), -1},
		{"a machine without a hypervisor", new(3000.0), nil, 3000},
		{"a virtual machine", new(3000.0), new(500.0), 3500},
		{"a steal time that is none", new(3000.0), new(-500.0), 3000},
	} {
		got := Taken(tt.use, tt.steal)
		if (got == nil) != (tt.want < 0) || got != nil && *got != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}

func TestFree(t *testing.T) {
	for _, tt := range []struct {
		name                         string
		capacity, taken, batch, want float64
	}{
		{"services use 2 of 4", 4, 3, 1, 2},
		{"nothing runs", 4, 0, 0, 4},
		{"services use all", 4, 4, 0, 0},
		{"services use more than all, as it is read", 4, 4.5, 0, 0},
		{"the hypervisor took 1 of 4 beside services that use 2 and batch that uses 1", 4, 4, 1, 1},
		{"batch used more than the node, as the two are read", 4, 1, 1.1, 4},
		{"batch used more than there is, as it is read", 4, 4, 4.1, 4.1},
	} {
		if got := Free(tt.capacity, tt.taken, tt.batch); got != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}
