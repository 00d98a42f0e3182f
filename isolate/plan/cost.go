package plan

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"polder/lib/clip"
	"polder/lib/tick"
)

// keyIOCost is the key whose files, which only the root has, have a line for each disk.
const keyIOCost = "ioCost"

// These are io.cost's files (Documentation/admin-guide/cgroup-v2.rst): latency targets of a disk's reads and writes, and its cost model.
const (
	fileCostQOS   = "io.cost.qos"
	fileCostModel = "io.cost.model"
)

func isCost(name string) bool { return name == fileCostQOS || name == fileCostModel }

const (
	// maxLatencyMicroseconds is the longest target; maxPacePercent is the largest percentage of a disk's pace that the kernel accepts.
	maxLatencyMicroseconds = 60_000_000
	maxPacePercent         = 10_000
)

// costs turns the desired costs of disks into settings: the model of each disk, if one is desired, and then its switch.
func (t *translator) costs(c *tick.Cgroup) {
	if len(c.IOCost) == 0 {
		return
	}
	version := t.machine.Versions["io"]
	switch {
	case c.Cgroup != "/":
		t.problemOnce(c, keyIOCost, "refused: disk costs apply to the whole machine: only the root cgroup has them")
		return
	case version != 2:
		t.problemOnce(c, keyIOCost, unavailable+"io.cost exists only on cgroup version 2; not written")
		return
	case len(c.IOCost) > maxDiskLimits:
		t.problem(c, keyIOCost, fmt.Sprintf("%d disks refused: want %d at most", len(c.IOCost), maxDiskLimits))
		return
	}
	isNamed, isSet := map[string]bool{}, map[string]bool{}
	for i := range c.IOCost {
		isNamed[c.IOCost[i].Disk] = true
	}
	for i := range c.IOCost {
		d := &c.IOCost[i]
		texts, err := costTexts(d)
		if err != nil {
			t.problem(c, keyIOCost, err.Error())
			continue
		}
		isFound := false
		for j := range t.machine.Disks {
			disk := &t.machine.Disks[j]
			isInAll := d.Disk == tick.AllDisks && disk.IsInAll && !isNamed[disk.Name] &&
				!slices.ContainsFunc(disk.Mounts, func(m string) bool { return isNamed[m] })
			if !isInAll && d.Disk != disk.Name && !slices.Contains(disk.Mounts, d.Disk) {
				continue
			}
			isFound = true
			if isSet[disk.Device] {
				t.problemOnce(c, keyIOCost, fmt.Sprintf("%q is a disk that another entry already names: skipped", clip.Text(d.Disk, maxShownBytes)))
				continue
			}
			isSet[disk.Device] = true
			for k, name := range []string{fileCostModel, fileCostQOS} {
				s := Setting{File: File{Controller: "io", Cgroup: "/", Name: name, Device: disk.Device}, Key: keyIOCost, Version: version, text: texts[k], restoresOriginal: d.Enabled == nil}
				if s.restoresOriginal || s.text != "" {
					t.settings = append(t.settings, s)
				}
			}
		}
		if !isFound && d.Disk != tick.AllDisks {
			t.problemOnce(c, keyIOCost, fmt.Sprintf("no disk of this machine is %q: want a name of /sys/block, a mount point, or %q", clip.Text(d.Disk, maxShownBytes), tick.AllDisks))
		}
	}
}

// costTexts returns the texts to write for one disk: the model, empty if none is desired, and the switch with the targets.
func costTexts(d *tick.DiskCost) (texts [2]string, err error) {
	if d.Enabled == nil {
		return texts, nil
	}
	words := []string{"enable=0"}
	if *d.Enabled {
		words[0] = "enable=1"
	}
	for _, p := range []struct {
		word    string
		value   *float64
		minimum float64
		maximum float64
	}{
		{"rpct", d.ReadPercentile, 0, 100},
		{"rlat", d.ReadLatencyMicroseconds, 1, maxLatencyMicroseconds},
		{"wpct", d.WritePercentile, 0, 100},
		{"wlat", d.WriteLatencyMicroseconds, 1, maxLatencyMicroseconds},
		{"min", d.MinPercent, 1, maxPacePercent},
		{"max", d.MaxPercent, 1, maxPacePercent},
	} {
		if p.value == nil {
			continue
		}
		err = cmp.Or(err, checkBounds(d, p.word, *p.value, p.minimum, p.maximum))
		text := strconv.FormatFloat(*p.value, 'f', 2, 64)
		if strings.HasSuffix(p.word, "lat") {
			text = strconv.FormatFloat(*p.value, 'f', 0, 64)
		}
		words = append(words, p.word+"="+text)
	}
	if d.MinPercent != nil && d.MaxPercent != nil && *d.MinPercent > *d.MaxPercent {
		err = fmt.Errorf("min %v over max %v of %q refused", *d.MinPercent, *d.MaxPercent, clip.Text(d.Disk, maxShownBytes))
	}
	control := "ctrl=auto"
	if len(words) > 1 {
		control = "ctrl=user"
	}
	texts[1] = strings.Join(slices.Insert(words, 1, control), " ")
	if d.Model != nil && err == nil {
		texts[0], err = modelText(d, d.Model)
	}
	return texts, err
}

// modelText returns what a disk can do in the kernel's format.
func modelText(d *tick.DiskCost, m *tick.DiskModel) (text string, err error) {
	model := []string{"ctrl=user", "model=linear"}
	for _, p := range []struct {
		word  string
		value int64
	}{
		{"rbps", m.ReadBytesPerSecond},
		{"rseqiops", m.SequentialReadsPerSecond},
		{"rrandiops", m.RandomReadsPerSecond},
		{"wbps", m.WriteBytesPerSecond},
		{"wseqiops", m.SequentialWritesPerSecond},
		{"wrandiops", m.RandomWritesPerSecond},
	} {
		err = cmp.Or(err, checkBounds(d, p.word, float64(p.value), 1, maxDiskBytes))
		model = append(model, p.word+"="+strconv.FormatInt(p.value, 10))
	}
	return strings.Join(model, " "), err
}

// checkBounds refuses a value outside its bounds. NaN is outside any bounds.
func checkBounds(d *tick.DiskCost, word string, v, minimum, maximum float64) error {
	if v >= minimum && v <= maximum {
		return nil
	}
	return fmt.Errorf("%s=%v of %q refused: want %v to %v", word, v, clip.Text(d.Disk, maxShownBytes), minimum, maximum)
}

// costValues returns the values of a line by name, without those that the kernel itself sets (ctrl=auto). A disk without a line is
// disabled, and its model is the kernel's.
func costValues(name, text string) map[string]string {
	words := map[string]string{}
	for field := range strings.FieldsSeq(text) {
		word, value, _ := strings.Cut(field, "=")
		if f, err := strconv.ParseFloat(value, 64); err == nil {
			value = strconv.FormatFloat(f, 'f', -1, 64)
		}
		words[word] = value
	}
	if words["ctrl"] == "" {
		words["ctrl"] = "auto"
	}
	if name == fileCostQOS && words["enable"] == "" {
		words["enable"] = "0"
	}
	if words["ctrl"] == "auto" {
		for word := range words {
			if word != "ctrl" && word != "enable" {
				delete(words, word)
			}
		}
	}
	return words
}

// sameCost reports whether two lines mean the same, comparing the values that both contain: a write contains only desired values.
func sameCost(name, a, b string) bool {
	x, y := costValues(name, a), costValues(name, b)
	for word, value := range x {
		if other, both := y[word]; both && other != value {
			return false
		}
	}
	return true
}

// desiredCost returns the text of a disk's costs: the desired or the original one.
func (s *Setting) desiredCost() string {
	text := s.text
	if s.restoresOriginal {
		text = s.Original
	} else if !s.isFileText {
		return text
	}
	words := costValues(s.Name, text)
	order := []string{
		"enable", "ctrl", "model", "rpct", "rlat", "wpct", "wlat", "min", "max", "rbps", "rseqiops", "rrandiops", "wbps",
		"wseqiops", "wrandiops",
	}
	var out []string
	for _, word := range order {
		if value, ok := words[word]; ok {
			out = append(out, word+"="+value)
		}
	}
	return strings.Join(out, " ")
}

func sameDiskCost(a, b tick.DiskCost) bool {
	return a.Disk == b.Disk && same(a.Enabled, b.Enabled) && same(a.ReadPercentile, b.ReadPercentile) &&
		same(a.ReadLatencyMicroseconds, b.ReadLatencyMicroseconds) &&
		same(a.WritePercentile, b.WritePercentile) && same(a.WriteLatencyMicroseconds, b.WriteLatencyMicroseconds) &&
		same(a.MinPercent, b.MinPercent) && same(a.MaxPercent, b.MaxPercent) && same(a.Model, b.Model)
}
