package classify

import (
	"errors"
	"fmt"
	"os"
	"path"
	"strconv"
	"strings"

	"polder/lib/choice"
	"polder/lib/config"
	"polder/lib/tick"
)

// maxBytes bounds the file.
const maxBytes = 1 << 20

// Read reads a file of rules.
func Read(path string) (*Rules, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read classification rules: %w", err)
	}
	return Parse(path, data)
}

// file is the structure of the file.
type file struct {
	Rules []ruleText `yaml:"rules"`
}

type ruleText struct {
	Cgroup     word       `yaml:"cgroup"`
	Class      word       `yaml:"class"`
	Containers word       `yaml:"containers"`
	Namespace  word       `yaml:"namespace"`
	Name       word       `yaml:"name"`
	Requests   *resources `yaml:"requests"`
	Limits     *resources `yaml:"limits"`
}

type resources struct {
	MilliCPU             *thousandths  `yaml:"milliCPU"`
	MemoryBytes          *config.Bytes `yaml:"memoryBytes"`
	ReclaimedMilliCPU    *thousandths  `yaml:"reclaimedMilliCPU"`
	ReclaimedMemoryBytes *config.Bytes `yaml:"reclaimedMemoryBytes"`
}

// word is a text with its line number.
type word struct {
	text string
	line int
}

func (w *word) UnmarshalYAML(n *config.Node) (err error) {
	w.text, err = config.Scalar(n)
	w.line = n.Line
	return err
}

// thousandths is an amount of CPU as a plain number: config.MilliCPU would read 2 as 2 cores.
type thousandths float64

func (m *thousandths) UnmarshalYAML(n *config.Node) error {
	text, err := config.Scalar(n)
	if err != nil {
		return err
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil || !(f >= 0 && f <= 1e9) {
		return config.NodeError(n, fmt.Errorf("%q is not a number of milli-CPU: want one such as 2000, not negative", text))
	}
	*m = thousandths(f)
	return nil
}

// Parse parses a file of rules; name is its name in errors.
func Parse(name string, data []byte) (*Rules, error) {
	if len(data) > maxBytes {
		return nil, fmt.Errorf("%s: larger than %d bytes", name, maxBytes)
	}
	var f file
	if err := config.Decode(name, data, &f); err != nil {
		return nil, err
	}
	if len(f.Rules) == 0 {
		return nil, fmt.Errorf("%s: no rules: want a list under the key rules (collect --print-classify prints an example)", name)
	}
	r := &Rules{rules: make([]Rule, 0, len(f.Rules))}
	lines := map[string]int{}
	var errs []error
	for i := range f.Rules {
		text := &f.Rules[i]
		rule, line, err := text.rule()
		if err == nil && lines[text.Cgroup.text] > 0 {
			err = fmt.Errorf("cgroup %s is already in line %d", text.Cgroup.text, lines[text.Cgroup.text])
		}
		if err != nil {
			errs = append(errs, located(name, line, i, err))
			continue
		}
		lines[text.Cgroup.text], rule.Line = line, line
		r.rules = append(r.rules, rule)
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return r, nil
}

func located(name string, line, i int, err error) error {
	if line == 0 {
		return fmt.Errorf("%s: rule %d: %w", name, i+1, err)
	}
	return fmt.Errorf("%s:%d: %w", name, line, err)
}

// rule checks a rule; the line is that of the key that is wrong.
func (t *ruleText) rule() (Rule, int, error) {
	r := Rule{Namespace: t.Namespace.text, Name: t.Name.text, Requests: t.Requests.resources(), Limits: t.Limits.resources()}
	var err error
	if r.glob, err = parseGlob(t.Cgroup.text); err != nil {
		return r, t.Cgroup.line, err
	}
	switch t.Class.text {
	case tick.QoSDedicated, tick.QoSShared, tick.QoSReclaimed, tick.QoSSystem:
		r.Class = t.Class.text
	case classNone:
	case "":
		return r, t.Cgroup.line, fmt.Errorf("cgroup %s has no class: want dedicated, shared, reclaimed, system or none", t.Cgroup.text)
	default:
		known := []string{tick.QoSDedicated, tick.QoSShared, tick.QoSReclaimed, tick.QoSSystem, classNone}
		return r, t.Class.line, fmt.Errorf("class %q: want dedicated, shared, reclaimed, system or none%s", t.Class.text, choice.Suggestion(t.Class.text, known))
	}
	switch t.Containers.text {
	case "", "self":
	case "children":
		r.ChildContainers = true
	default:
		return r, t.Containers.line, fmt.Errorf("containers %q: want self or children", t.Containers.text)
	}
	for _, w := range []word{t.Namespace, t.Name} {
		if err := tick.CheckName(w.text); err != nil {
			return r, w.line, err
		}
	}
	return r, t.Cgroup.line, nil
}

// parseGlob checks a glob and splits it into its elements.
func parseGlob(glob string) ([]string, error) {
	switch {
	case glob == "":
		return nil, errors.New("no cgroup: want a glob such as /kubepods/burstable/pod*")
	case glob[0] != '/':
		return nil, fmt.Errorf("cgroup %q does not begin with a slash", glob)
	case glob == "/":
		return nil, errors.New("cgroup / is the whole machine, which cannot be a pod")
	}
	elements := split(glob)
	for _, e := range elements {
		switch {
		case e == "":
			return nil, fmt.Errorf("cgroup %q has a double or a last slash", glob)
		case e == "." || e == "..":
			return nil, fmt.Errorf("cgroup %q holds %s", glob, e)
		case e != "**" && strings.Contains(e, "**"):
			return nil, fmt.Errorf("cgroup %q: ** can only be a whole element, between slashes", glob)
		}
		if _, err := path.Match(e, "x"); err != nil {
			return nil, fmt.Errorf("cgroup %q: %q is not a glob: a [ is not closed, or it ends with a \\", glob, e)
		}
	}
	return elements, nil
}

func (r *resources) resources() *tick.Resources {
	if r == nil {
		return nil
	}
	return &tick.Resources{
		MilliCPU: tick.Float(r.MilliCPU), MemoryBytes: tick.Float(r.MemoryBytes),
		ReclaimedMilliCPU: tick.Float(r.ReclaimedMilliCPU), ReclaimedMemoryBytes: tick.Float(r.ReclaimedMemoryBytes),
	}
}
