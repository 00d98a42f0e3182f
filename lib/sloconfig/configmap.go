package sloconfig

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/labels"

	"polder/lib/fields"
)

// LastValid contains the last valid document of each key of a ConfigMap.
type LastValid map[string]string

// ConfigMap is a parsed ConfigMap. It is immutable.
type ConfigMap struct {
	from       string
	colocation *document[Colocation]
	threshold  *document[Threshold]
	qos        *document[ResourceQOS]
	burst      *document[CPUBurst]
	system     *document[System]
	// Problems are its errors, with key and reason, and what is in force instead.
	Problems []error
	// Unsupported are the keys and fields that are set without effect on the tools.
	Unsupported []string
}

// Parse reads a ConfigMap's data. Instead of a rejected document the last valid one of its key stays in force; a key that is
// missing, or empty, has the defaults.
func (m LastValid) Parse(from string, data map[string]string) *ConfigMap {
	c := &ConfigMap{from: from}
	c.colocation = resolveKey(c, m, colocationKind, data)
	c.threshold = resolveKey(c, m, thresholdKind, data)
	c.qos = resolveKey(c, m, qosKind, data)
	c.burst = resolveKey(c, m, burstKind, data)
	c.system = resolveKey(c, m, systemKind, data)
	c.Unsupported = append(unknownKeys(data), c.Unsupported...)
	if n := len(c.Unsupported) - maxListed; n > 0 {
		c.Unsupported = append(c.Unsupported[:maxListed], fmt.Sprintf("and %d more", n))
	}
	return c
}

func resolveKey[T any](c *ConfigMap, m LastValid, k *kind[T], data map[string]string) *document[T] {
	defaults, _ := k.read("{}")
	text := data[k.key]
	if strings.TrimSpace(text) == "" {
		delete(m, k.key)
		return defaults
	}
	d, faults := k.read(text)
	if len(faults) == 0 {
		m[k.key] = text
		c.addProblems(k.key, d.invalidEntries, "the cluster's strategy applies instead")
		c.addProblems(k.key, d.warnings, "")
		for _, path := range d.scan.unknown {
			c.Unsupported = append(c.Unsupported, k.key+": "+path+unknownSuffix(path))
		}
		for _, path := range d.unused {
			c.Unsupported = append(c.Unsupported, k.key+": "+path)
		}
		return d
	}
	if last, isKnown := m[k.key]; isKnown {
		if d, errs := k.read(last); len(errs) == 0 {
			c.addProblems(k.key, faults, "the last valid one stays in force")
			return d
		}
		delete(m, k.key)
	}
	c.addProblems(k.key, faults, "no earlier one was valid: the defaults apply, with nothing enabled")
	return defaults
}

// addProblems records problems of one key.
func (c *ConfigMap) addProblems(key string, faults []*fault, instead string) {
	for i, f := range faults {
		if i == maxFaults {
			c.Problems = append(c.Problems, fmt.Errorf("%s: and %d more", key, len(faults)-i))
			return
		}
		err := fmt.Errorf("%s: %w", key, f)
		if instead != "" {
			err = fmt.Errorf("%w: %s", err, instead)
		}
		c.Problems = append(c.Problems, err)
	}
}

// These are Koordinator's further keys, and fields of the supported keys, that the tools do not support.
var (
	otherKeys   = []string{"host-application-config", "cpu-normalization-config", "resource-amplification-config"}
	otherFields = []string{
		"groupIdentity", "coreExpeller", "cpuPolicy", "extensions", "minFreeKbytesFactor", "watermarkScaleFactor", "memcgReapBackGround",
	}
	// ofClasses are the parts of a class that cgroupRoot contains as well, without effect there.
	ofClasses = []string{"cgroupRoot.cpuQOS", "cgroupRoot.memoryQOS", "cgroupRoot.resctrlQOS", "cgroupRoot.networkQOS"}
	// pageCacheLimit is the prefix of several names, which kernels write as pagecache_limit.
	pageCacheLimit = "pagecachelimit"
)

// unknownSuffix marks a field that is not known as Koordinator's either.
func unknownSuffix(path string) string {
	name := path[strings.LastIndexByte(path, '.')+1:]
	if slices.ContainsFunc(ofClasses, func(part string) bool { return strings.HasSuffix(strings.ToLower(path), strings.ToLower("."+part)) }) {
		return ""
	}
	if strings.HasPrefix(strings.ToLower(strings.ReplaceAll(name, "_", "")), pageCacheLimit) || slices.ContainsFunc(otherFields, func(f string) bool { return strings.EqualFold(f, name) }) {
		return ""
	}
	return " (unknown)"
}

// unknownKeys returns the ConfigMap's keys that are not read.
func unknownKeys(data map[string]string) (list []string) {
	for _, key := range slices.Sorted(maps.Keys(data)) {
		text := strings.Join(strings.Fields(data[key]), "")
		switch {
		case slices.Contains(Keys, key) || text == "" || text == "{}":
		case len(list) == 2*maxListed:
			return list
		case slices.Contains(otherKeys, key):
			list = append(list, key)
		default:
			list = append(list, fields.Clip(key)+" (unknown)")
		}
	}
	return list
}

// Resolve returns what the ConfigMap contains for one node: the defaults, over them the cluster's strategies, over them the first node
// entry that matches its labels, and for colocation its annotation and its labels with ratios. The errors are the ConfigMap's and the
// node's own.
func (c *ConfigMap) Resolve(nodeLabels, annotations map[string]string) (*Strategies, []error) {
	s := Defaults()
	s.From = c.from
	errs := slices.Clone(c.Problems)
	s.ColocationDisabled = !*c.colocation.cluster.Enable
	errs = append(errs, resolve(&s, colocationKind, c.colocation, nodeLabels)...)
	errs = append(errs, resolve(&s, thresholdKind, c.threshold, nodeLabels)...)
	errs = append(errs, resolve(&s, qosKind, c.qos, nodeLabels)...)
	errs = append(errs, resolve(&s, burstKind, c.burst, nodeLabels)...)
	errs = append(errs, resolve(&s, systemKind, c.system, nodeLabels)...)
	errs = append(errs, s.ofNode(nodeLabels, annotations)...)
	if s.ColocationDisabled {
		s.Colocation.Enable = new(false)
	}
	return &s, errs
}

func resolve[T any](s *Strategies, k *kind[T], d *document[T], nodeLabels map[string]string) (errs []error) {
	chosen, others := d.choose(labels.Set(nodeLabels))
	strategy := d.cluster
	if chosen != nil && chosen.strategy != nil {
		strategy = chosen.strategy
		if s.Entries == nil {
			s.Entries = map[string]string{}
		}
		if s.Entries[k.key] = chosen.name; chosen.name == "" {
			s.Entries[k.key] = chosen.path
		}
	}
	*k.part(s) = *merged(new(T), strategy)
	if len(others) > 0 {
		errs = append(errs, fmt.Errorf("%s: the node is selected by %s and by %s: the first one applies", k.key, chosen.describe(), strings.Join(others, ", ")))
	}
	return errs
}

// Saved is the state of a ConfigMap's reader between two runs.
type Saved struct {
	// Name is the ConfigMap's.
	Name      string    `json:"name"`
	LastValid LastValid `json:"good,omitempty"`
	// InForce are the strategies of the node, as they are in sample.config.
	InForce json.RawMessage `json:"inForce,omitempty"`
}
