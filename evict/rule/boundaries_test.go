package rule

import (
	"fmt"
	"strings"
	"testing"

	"polder/lib/cpus"
	"polder/lib/tick"
)

// The bounds of a pool's load are its CPUs times the ratios, for any ratios.
func TestLoadBoundsOfAPool(t *testing.T) {
	s := Defaults()
	s.LoadLowerBoundRatio, s.LoadUpperBoundRatio = 1.5, 2.5
	x, err := (&pool{name: "share", size: 10}).sample(&s, &Measure{}, cpus.Set{})
	if err != nil || x.Lower != 15 || x.Upper != 25 {
		t.Errorf("bounds %v and %v of 10 CPUs, %v; want 15 and 25", x.Lower, x.Upper, err)
	}
}

// A threshold that was met stays met down to the threshold less the hysteresis, for the node's waiting and for the pods' mean;
// otherwise the value must exceed the threshold itself. The message contains the pods' mean.
func TestPSIHysteresis(t *testing.T) {
	for _, tt := range []struct {
		name       string
		node, pods float64 // of the second tick; the first one is far above both
		met        bool
	}{
		{"both over nine tenths", 13.6, 3.7, true},
		{"the node just at it", 13.5, 9, false},
		{"the pods just at it", 50, 3.6, true},
		{"the pods under it", 50, 3.59, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := Defaults()
			s.MemoryHysteresis = 0.1
			w := memoryPressure.New()
			var f *Finding
			for i, podWithPSI := range [][2]float64{{50, 9}, {tt.node, tt.pods}} {
				var pods []tick.Pod
				for j := range 3 {
					p := podWithMemory(fmt.Sprintf("s%d", j), tick.QoSShared, 1)
					p.MemoryPressure = stall(podWithPSI[1])
					pods = append(pods, p)
				}
				x := shortTick(i, 50, pods...)
				x.Sample.Memory.Pressure = stall(podWithPSI[0])
				f = part(w.Measure(&s, x), partPSI)
			}
			if f == nil || f.Met != tt.met {
				t.Fatalf("finding %+v; want met %t", f, tt.met)
			}
			if want := fmt.Sprintf("3 pods for %.2f%% on average", tt.pods); f.Met && !strings.Contains(f.Message, want) {
				t.Errorf("message %q; want %q in it", f.Message, want)
			}
		})
	}
}
