package offers

import (
	"bufio"
	"cmp"
	"compress/gzip"
	"fmt"
	"io"
	"io/fs"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// trace is the load of one machine: the services' use, sample by sample.
type trace struct {
	name     string
	cpus     int
	interval time.Duration
	samples  []sample
}

// sample is a moment: the usage of each pod in milli-CPU, and the part of the memory that is in use, 0 if unknown.
type sample struct {
	at     time.Time
	pods   []float64
	memory float64
}

// part is the use as a part of the machine.
func (t *trace) part(i int) float64 {
	sum := 0.0
	for _, pod := range t.samples[i].pods {
		sum += pod
	}
	return sum / float64(t.cpus*1000)
}

// cpu is the services' use of CPU.
func (t *trace) cpu() (use series) {
	for i := range t.samples {
		use.at, use.used = append(use.at, t.samples[i].at), append(use.used, t.part(i))
	}
	return use
}

// memory is the services' use of memory, at the samples at which it is known.
func (t *trace) memory() (use series) {
	for _, s := range t.samples {
		if s.memory > 0 {
			use.at, use.used = append(use.at, s.at), append(use.used, s.memory)
		}
	}
	return use
}

// midnight is the start of traces without a date.
var midnight = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// generated are machines whose load follows the day, with bursts of its own: calm ones, and restless ones.
func generated(machines, days int) (list []trace) {
	for m := range machines {
		rng := rand.New(rand.NewPCG(uint64(m), 7))
		t := trace{name: fmt.Sprintf("generated-%d", m), cpus: 48, interval: time.Minute}
		base, swing, noise := 0.15+0.1*rng.Float64(), 0.1*rng.Float64(), 0.01+0.02*float64(m%3)
		burst, left := 0.0, 0
		for i := range days * 24 * 60 {
			day := 2 * math.Pi * float64(i%1440) / 1440
			if left--; left <= 0 {
				burst = 0
				if rng.IntN(300) == 0 {
					burst, left = 0.3*rng.Float64(), 1+rng.IntN(15)
				}
			}
			use := max(0.02, base+swing*(1-math.Cos(day))+burst+noise*rng.NormFloat64())
			at := midnight.Add(time.Duration(i) * time.Minute)
			t.samples = append(t.samples, sample{at, []float64{min(use, 1) * float64(t.cpus*1000)}, 0.5 + 0.1*use})
		}
		list = append(list, t)
	}
	return list
}

const (
	// A machine of the PlanetLab set is so many virtual machines, each of which has a CPU.
	planetlabVMs = 48
	// A machine of the Alibaba set has so many CPUs.
	alibabaCPUs = 96
	// longestHeld is how long the last known usage of a machine stands for the minutes after it; then there is a gap in the stream.
	longestHeld = 10 * time.Minute
)

// planetlab reads the files of one day of the PlanetLab set (CoMon, as in CloudSim's repository, examples/workload/planetlab): a file
// a virtual machine, a line every five minutes, its CPU use in percent.
func planetlab(dir string) (list []trace, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var vms [][]float64
	for _, e := range entries {
		if !e.Type().IsRegular() {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return nil, err
		}
		var vm []float64
		for line := range strings.FieldsSeq(string(text)) {
			percent, err := strconv.ParseFloat(line, 64)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", filepath.Join(dir, e.Name()), err)
			}
			vm = append(vm, percent*10)
		}
		vms = append(vms, vm)
	}
	for m := range len(vms) / planetlabVMs {
		t := trace{name: fmt.Sprintf("planetlab-%s-%d", filepath.Base(dir), m), cpus: planetlabVMs, interval: 5 * time.Minute}
		own := vms[m*planetlabVMs : (m+1)*planetlabVMs]
		for i := range slices.MinFunc(own, func(a, b []float64) int { return cmp.Compare(len(a), len(b)) }) {
			s := sample{at: midnight.Add(time.Duration(i) * t.interval), memory: 0.5} // the traces have no memory
			for _, vm := range own {
				s.pods = append(s.pods, vm[i])
			}
			t.samples = append(t.samples, s)
		}
		list = append(list, t)
	}
	return list, nil
}

// alibaba reads machine_usage of cluster-trace-v2018 (machine, seconds, CPU percent, memory percent, ...), of any number of machines,
// as a sample a minute: the last one that is known.
func alibaba(path string) (list []trace, err error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	var in io.Reader = file
	if strings.HasSuffix(path, ".gz") {
		if in, err = gzip.NewReader(file); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
	}
	type reading struct{ second, cpu, memory float64 }
	readings := map[string][]reading{}
	lines := bufio.NewScanner(in)
	for n := 1; lines.Scan(); n++ {
		columns := strings.Split(lines.Text(), ",")
		if len(columns) < 4 {
			return nil, fmt.Errorf("%s:%d: %d columns, want at least 4", path, n, len(columns))
		}
		second, err := strconv.ParseFloat(columns[1], 64)
		if err != nil {
			return nil, fmt.Errorf("%s:%d: %w", path, n, err)
		}
		cpu, err := strconv.ParseFloat(columns[2], 64)
		if err != nil || !(cpu >= 0 && cpu <= 100) { // -1 and 101 stand for no value
			continue
		}
		memory, _ := strconv.ParseFloat(columns[3], 64) // may be empty
		readings[columns[0]] = append(readings[columns[0]], reading{second, cpu, memory})
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	for name, of := range readings {
		slices.SortStableFunc(of, func(a, b reading) int { return cmp.Compare(a.second, b.second) })
		t := trace{name: "alibaba-" + name, cpus: alibabaCPUs, interval: time.Minute}
		at := 0
		for second := math.Ceil(of[0].second/60) * 60; second <= of[len(of)-1].second; second += 60 {
			for at+1 < len(of) && of[at+1].second <= second {
				at++
			}
			if second-of[at].second > longestHeld.Seconds() {
				continue
			}
			now := midnight.Add(time.Duration(second) * time.Second)
			t.samples = append(t.samples, sample{now, []float64{of[at].cpu / 100 * alibabaCPUs * 1000}, of[at].memory / 100})
		}
		list = append(list, t)
	}
	slices.SortFunc(list, func(a, b trace) int { return strings.Compare(a.name, b.name) })
	return list, nil
}

// set is a number of machines that are judged together: their CPU, and their memory if the traces have it.
type set struct {
	name      string
	hasMemory bool
	traces    []trace
}

// read finds the two sets below a directory: directories of enough files for a machine are PlanetLab's, tables Alibaba's.
func read(dir string) ([]set, error) {
	planet, ali := set{name: "PlanetLab, every 5 minutes"}, set{name: "Alibaba 2018, every minute", hasMemory: true}
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		var found []trace
		switch {
		case e.IsDir():
			if names, err := os.ReadDir(path); err != nil || len(names) < planetlabVMs {
				return err
			}
			found, err = planetlab(path)
			planet.traces = append(planet.traces, found...)
		case strings.HasSuffix(path, ".csv") || strings.HasSuffix(path, ".csv.gz"):
			found, err = alibaba(path)
			ali.traces = append(ali.traces, found...)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	sets := slices.DeleteFunc([]set{planet, ali}, func(s set) bool { return len(s.traces) == 0 })
	if len(sets) == 0 {
		return nil, fmt.Errorf("%s has no trace: want directories with at least %d files a day of PlanetLab's virtual machines (unpacked), "+
			"or tables of Alibaba's machine_usage (*.csv, *.csv.gz)", dir, planetlabVMs)
	}
	return sets, nil
}
