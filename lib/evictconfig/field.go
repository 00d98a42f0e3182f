package evictconfig

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"polder/lib/fields"
)

// These are the kinds of Katalyst's configuration objects: the guide's, and the present one.
const (
	EvictionConfiguration = "EvictionConfiguration"
	AdminQoSConfiguration = "AdminQoSConfiguration"
)

// Field is a field of one of Katalyst's configuration objects that sets a setting.
type Field struct {
	// Kind is the object's, Path the field's within evict's section of spec.config.
	Kind, Path string
	// Resource is the resource of the value if the field is a map by resource; otherwise it is empty.
	Resource string
	// Expected describes the valid values, and Read converts one from JSON to the setting's type.
	Expected string
	Read     func(any) (any, error)
	// Names maps the members of a list to the setting's names; others are omitted. It is nil if the field is no list.
	Names map[string]string
}

func eviction(path string) Field { return Field{Kind: EvictionConfiguration, Path: path} }
func adminQoS(path string) Field { return Field{Kind: AdminQoSConfiguration, Path: path} }

// of returns a field with a factor for each resource.
func of(resource string, f Field) Field {
	b := positive(MaxRatio)
	f.Resource, f.Expected, f.Read = resource, b.expected+", for each of `reclaimed_millicpu` and `reclaimed_memory`", readNumber(b)
	return f
}

// toString returns a time span as text, or in nanoseconds as Go encodes it.
func toString(f Field) Field {
	f.Expected = "a time span of 0 to 24h, such as 300s"
	f.Read = func(v any) (any, error) {
		if text, ok := v.(string); ok {
			d, err := time.ParseDuration(text)
			if err != nil || d < 0 || d > day*time.Second {
				return nil, fmt.Errorf("%s: want %s", describe(v), f.Expected)
			}
			return d, nil
		}
		n, err := integer(v, 0, day*int64(time.Second))
		return time.Duration(n), err
	}
	return f
}

// By these measures the victims of memory pressure are ranked; the names are Katalyst's.
const (
	RankQoS         = "qos.pod"                  // reclaimed pods before others
	RankPriority    = "priority.pod"             // the lower priority first
	RankMemoryUsage = "mem.usage.container"      // the larger use first
	RankRSS         = "mem.rss.container"        // the larger resident set first
	RankNUMAMemory  = "mem.total.numa.container" // the larger use on the NUMA node first
)

// notRanked are measures that Katalyst supports, and evict does not.
var notRanked = []string{"native.qos.pod", "owner.pod"}

// ranked returns a list of measures by which pods are ranked.
func ranked(f Field, allowed []string) Field {
	f.Names = map[string]string{}
	for _, name := range allowed {
		f.Names[name] = name
	}
	f.Expected = "some of `" + strings.Join(allowed, "`, `") + "`"
	f.Read = func(v any) (any, error) {
		list, err := readNames(v)
		if err == nil {
			err = checkList(list, allowed, notRanked)
		}
		return list, err
	}
	return f
}

// plugins maps the names in dryRun, of the guide's release and of later ones, to evict's rule that does at least the same.
var plugins = map[string]string{
	"*": "*",
	"reclaimed-resource-pressure-eviction-plugin":      "reclaimed-resource-pressure-eviction-plugin",
	"reclaimed-numa-resource-pressure-eviction-plugin": "reclaimed-resource-pressure-eviction-plugin",
	"memory-pressure-eviction-plugin":                  "memory-pressure-eviction-plugin",
	"system-memory-pressure-eviction-plugin":           "memory-pressure-eviction-plugin",
	"numa-memory-pressure-eviction-plugin":             "memory-pressure-eviction-plugin",
	"cpu-pressure-eviction-plugin":                     "cpu-pressure-eviction-plugin",
	"cpu-pressure-load-plugin":                         "cpu-pressure-eviction-plugin",
	"cpu-pressure-suppression-plugin":                  "cpu-pressure-eviction-plugin",
	"rss-overuse-eviction-plugin":                      "rss-overuse-eviction-plugin",
}

// known returns a list of names, some of which evict has under its own names.
func known(f Field, names map[string]string) Field {
	f.Names, f.Expected = names, "names of Katalyst's plugins, or `*`"
	f.Read = func(v any) (any, error) {
		list, err := readNames(v)
		return list, err
	}
	return f
}

func readNumber(b bounds[float64]) func(any) (any, error) {
	return func(v any) (any, error) {
		f, ok := fields.AsNumber(v)
		if !ok || b.check(f) != nil {
			return 0, fmt.Errorf("%s: want %s", describe(v), b.expected)
		}
		return f, nil
	}
}

func readInteger(b bounds[int]) func(any) (any, error) {
	return func(v any) (any, error) {
		n, ok := fields.AsInteger(v)
		if !ok || n != int64(int(n)) || b.check(int(n)) != nil {
			return 0, fmt.Errorf("%s: want a whole number from %s", describe(v), b.expected)
		}
		return int(n), nil
	}
}

func readSeconds(minimum int64) func(any) (any, error) {
	return func(v any) (any, error) {
		n, err := integer(v, minimum, day)
		return time.Duration(max(n, 0)) * time.Second, err
	}
}

func integer(v any, minimum, maximum int64) (int64, error) {
	n, ok := fields.AsInteger(v)
	if !ok || n < minimum || n > maximum {
		return 0, fmt.Errorf("%s: want a whole number from %d to %d", describe(v), minimum, maximum)
	}
	return n, nil
}

// ReadBool reads true or false.
func ReadBool(v any) (any, error) {
	b, ok := v.(bool)
	if !ok {
		return nil, fmt.Errorf("%s: want true or false", describe(v))
	}
	return b, nil
}

// readNames reads a list of texts.
func readNames(v any) ([]string, error) {
	list, ok := v.([]any)
	out := []string{}
	for _, x := range list {
		text, is := x.(string)
		if ok = ok && is && text != "" && len(text) <= 200 && len(out) < 100; !ok {
			break
		}
		out = append(out, text)
	}
	if !ok {
		return nil, fmt.Errorf("%s: want a list of names", describe(v))
	}
	return out, nil
}

func describe(v any) string {
	if text, ok := v.(string); ok {
		return strconv.Quote(fields.Clip(text))
	}
	return fields.Clip(fmt.Sprint(v))
}
