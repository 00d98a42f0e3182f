package explain

import (
	"fmt"
	"strings"
	"testing"

	"polder/lib/tick"
)

// explain describes batch's limits on the disks, for the pod of the question and for the node, and which service waited for them. For a
// service it describes its reads and writes and how long it waited.
func TestDisk(t *testing.T) {
	x := made(noon, 4000, 1000)
	x.Sample.Disks = []tick.Disk{
		{Name: "vda", UsePercent: new(40.0)},
		{Name: "vdb", UsePercent: new(97.0), WriteLatencyMicroseconds: new(45_000.0)},
	}
	x.Sample.Pods[0].IO = &tick.IO{ReadBytesPerSecond: new(1048576.0), ReadsPerSecond: new(1.0), WriteBytesPerSecond: new(5242880.0), WritesPerSecond: new(80.0)}
	x.Sample.Pods[1].IO = &tick.IO{WriteBytesPerSecond: new(2048.0)}
	x.Sample.Pods[1].IOPressure = &tick.Pressure{Some: &tick.PressureLine{Avg10: 23.4}}
	x.Advice.Cgroups = []tick.Cgroup{
		{Cgroup: "/batch", IOWeight: new(int64(1))},
		{Cgroup: "/batch/job", IOMax: []tick.DiskLimit{
			{Disk: tick.AllDisks, ReadBytesPerSecond: new(int64(tick.Unlimited)), WriteBytesPerSecond: new(int64(10 << 20)), WritesPerSecond: new(int64(100))},
			{Disk: "vda", ReadBytesPerSecond: new(int64(tick.Unlimited))},
		}},
		{Cgroup: "/batch/jobber", IOMax: []tick.DiskLimit{{Disk: "vda", ReadsPerSecond: new(int64(1))}}},
	}
	waited := func(ms int) string {
		return fmt.Sprintf(`service "shop/web" waited for I/O for %d ms per second, target 20 ms`, ms)
	}
	x.Advice.Reasons = []string{
		"batch disks: weight 1 of 1 cgroup",
		`guard: step 1: disk taken from batch (1 of 3) at 12:01:06, because ` + waited(300),
		`guard: step 2: disk taken from batch (2 of 3) at 12:01:12, because ` + waited(240),
	}
	x.Isolation = &tick.Isolation{Unavailable: []string{"ioWeight"}}
	at := moment(t, "12:00")
	const (
		weight = " The weight of /batch on disks was 1 (the default is 100): beside others it gets that share, if the disk's scheduler supports weights."
		tail   = ` Step 2 of 3 was taken from batch's disks at 12:01:12, because ` +
			`service "shop/web" waited for I/O for 240 ms per second, target 20 ms.` +
			" shop/web waited for I/O longest of the services: for 234 ms per second." +
			" The disk that was used most, vdb, had work in 97 % of the time; a write took 45 ms. This kernel has no file for ioWeight: it is not in force."
		did   = ": It read 1.00 MiB a second in 1 read and wrote 5.00 MiB a second in 80 writes."
		limit = " It was limited to 10.0 MiB written a second and 100 writes a second on each disk."
	)
	if text := spaces(ask(t, Question{Pod: "batch/job", At: at}, x)); !strings.Contains(text, did+limit+weight+tail) || strings.Contains(text, "batch disks:") {
		t.Errorf("a batch pod at one time: %s", text)
	}
	if text := spaces(ask(t, Question{Pod: "batch/job"}, x)); !strings.Contains(text, did+limit+weight+tail) {
		t.Errorf("a batch pod over a period: %s", text)
	}
	const node = ": All in /batch/job together were limited to 10.0 MiB written a second and 100 writes a second on each disk." +
		" All in /batch/jobber together were limited to 1 read a second on disk vda."
	for _, q := range []Question{{At: at}, {}} {
		if text := spaces(ask(t, q, x)); !strings.Contains(text, node) || !strings.Contains(text, tail) {
			t.Errorf("the node: %s", text)
		}
	}
	x.Advice.Cgroups = append(x.Advice.Cgroups, tick.Cgroup{Cgroup: "/", IOCost: []tick.DiskCost{{Disk: "vdb", Enabled: new(true)}, {Disk: tick.AllDisks, Enabled: new(true)}, {Disk: "vda"}}})
	x.Advice.Reasons = append(x.Advice.Reasons, `disk costs: io.cost on 2 disks ("vdb, all")`)
	const costs = " The kernel was to share disk vdb and each disk by what reads and writes cost (io.cost): there weights count with every scheduler."
	if text := spaces(ask(t, Question{At: at}, x)); !strings.Contains(text, costs) || strings.Contains(text, "disk costs:") {
		t.Errorf("the node, with costs: %s", text)
	}
	const service = "Disk: It wrote 2.00 KiB a second. It waited for I/O for 234 ms per second. "
	if text := spaces(ask(t, Question{Pod: "shop/web", At: at}, x)); !strings.Contains(text, service) ||
		strings.Contains(text, "limited to") {
		t.Errorf("a service: %s", text)
	}

	// Without an advice about disks only the observed use is reported, and nothing where there is none.
	x.Advice.Cgroups, x.Advice.Reasons, x.Isolation = nil, nil, nil
	if text := spaces(ask(t, Question{Pod: "batch/job", At: at}, x)); !strings.Contains(text, did+" Polder limited no disk.") {
		t.Errorf("without limits: %s", text)
	}
	if text := ask(t, Question{At: at}, made(noon, 4000, 1000)); strings.Contains(text, "Disk") {
		t.Errorf("without disks: %s", text)
	}
}
