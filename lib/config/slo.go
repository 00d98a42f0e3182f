package config

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"polder/lib/customconfig"
	"polder/lib/fields"
	"polder/lib/sloconfig"
)

// Objects are the configuration objects of a file; both are nil if it has none.
type Objects struct {
	Custom *customconfig.File // Katalyst's
	SLO    *sloconfig.File    // Koordinator's ConfigMap
}

// IsEmpty reports whether the file has no objects: then it contains the tool's own settings.
func (o Objects) IsEmpty() bool { return o.Custom == nil && o.SLO == nil }

// ReadObjects reads a file of the dialects' configuration objects: YAML documents, each an object or a List of them, as kubectl accepts
// and prints them. They are Katalyst's, and Koordinator's ConfigMap slo-controller-config, under any name. Both are nil if the file
// contains none of these: its first document has neither apiVersion nor kind.
func ReadObjects(path string, data []byte) (Objects, error) {
	documents, err := documentsOf(path, data)
	if err != nil {
		return Objects{}, err
	}
	var found Objects
	var others []document
	for _, d := range documents {
		if fields.Text(d.Object, "kind") != "ConfigMap" {
			others = append(others, d)
			continue
		}
		if found.SLO != nil {
			return Objects{}, fmt.Errorf("%s: a second ConfigMap: want one with %s", d.At("metadata", "name"), keys())
		}
		if found.SLO, err = configMap(path, d); err != nil {
			return Objects{}, err
		}
	}
	if others != nil {
		if found.Custom, err = customconfig.FileOf(custom(others)); err != nil {
			return Objects{}, err
		}
	}
	return found, nil
}

func keys() string { return strings.Join(sloconfig.Keys, ", ") }

// configMap reads one ConfigMap.
func configMap(path string, d document) (*sloconfig.File, error) {
	if got := fields.Text(d.Object, "apiVersion"); got != "v1" {
		return nil, fmt.Errorf("%s: apiVersion %q of a ConfigMap: want v1", d.At("apiVersion"), fields.Clip(got))
	}
	data := map[string]string{}
	for key, v := range fields.Child(d.Object, "data") {
		text, ok := v.(string)
		if !ok && v != nil {
			return nil, fmt.Errorf("%s: %s: want a string, as in a ConfigMap: put a | after the colon", d.At("data", key), fields.Clip(key))
		}
		data[key] = text
	}
	if !slices.ContainsFunc(sloconfig.Keys, func(key string) bool { _, ok := data[key]; return ok }) {
		return nil, fmt.Errorf("%s: the ConfigMap has none of the keys %s", d.At("data"), keys())
	}
	texts := entry(d.node, "data")
	return sloconfig.FileOf(path, data, func(key string, line int) string {
		n := entry(texts, key)
		if n.Style&yaml.LiteralStyle != 0 { // its text begins on the line after the |
			return path + ":" + strconv.Itoa(n.Line+line)
		}
		return path + ":" + strconv.Itoa(n.Line)
	})
}
