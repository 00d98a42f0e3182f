package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"

	"go.yaml.in/yaml/v3"

	"polder/lib/customconfig"
)

// Load reads a whole configuration file.
func Load(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read configuration: %w", err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxBytes+1))
	if err != nil {
		return nil, fmt.Errorf("read configuration: %w", err)
	}
	if len(data) > maxBytes {
		return nil, fmt.Errorf("read configuration: %s is larger than %d bytes", path, maxBytes)
	}
	return data, nil
}

// document is an object with its position.
type document struct {
	customconfig.Document
	node *yaml.Node
}

func custom(documents []document) []customconfig.Document {
	list := make([]customconfig.Document, len(documents))
	for i, d := range documents {
		list[i] = d.Document
	}
	return list
}

// documentsOf returns a file's objects, nil if it has none.
func documentsOf(path string, data []byte) ([]document, error) {
	var documents []document
	d := yaml.NewDecoder(bytes.NewReader(data))
	for first := true; ; {
		var n yaml.Node
		if err := d.Decode(&n); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			if first {
				return nil, nil // Decode reports the error
			}
			return nil, withPath(path, err)
		}
		if len(n.Content) == 0 {
			continue
		}
		root := n.Content[0]
		if root.Kind == yaml.ScalarNode && root.Tag == "!!null" {
			continue // an empty document between two separators
		}
		if first && entry(root, "apiVersion") == nil && entry(root, "kind") == nil {
			return nil, nil
		}
		first = false
		for _, o := range items(root) {
			v, err := jsonValue(o)
			if err != nil {
				return nil, withPath(path, err)
			}
			object, ok := v.(map[string]any)
			if !ok {
				return nil, fmt.Errorf("%s:%d: want an object with apiVersion and kind", path, o.Line)
			}
			at := func(keys ...string) string { return path + ":" + strconv.Itoa(line(o, keys)) }
			documents = append(documents, document{customconfig.Document{Object: object, At: at}, o})
		}
	}
	return documents, nil
}

// items returns the objects of a List, or the object itself.
func items(root *yaml.Node) []*yaml.Node {
	if kind, list := entry(root, "kind"), entry(root, "items"); kind != nil && kind.Value == "List" && list != nil && list.Kind == yaml.SequenceNode {
		return list.Content
	}
	return []*yaml.Node{root}
}

// entry returns a map's value, nil if there is none.
func entry(n *yaml.Node, key string) *yaml.Node {
	if n.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			return n.Content[i+1]
		}
	}
	return nil
}

// line returns the line of the deepest existing key of a path.
func line(n *yaml.Node, keys []string) int {
	at := n.Line
	for _, key := range keys {
		if n.Kind != yaml.MappingNode {
			break
		}
		found := false
		for i := 0; i+1 < len(n.Content) && !found; i += 2 {
			if found = n.Content[i].Value == key; found {
				at, n = n.Content[i].Line, n.Content[i+1]
			}
		}
		if !found {
			break
		}
	}
	return at
}

// jsonValue converts a value to the JSON that the API server would store. There a time is a text, and a key occurs once.
func jsonValue(n *yaml.Node) (any, error) {
	switch n.Kind {
	case yaml.MappingNode:
		m := make(map[string]any, len(n.Content)/2)
		for i := 0; i+1 < len(n.Content); i += 2 {
			key := n.Content[i]
			if key.Kind != yaml.ScalarNode || key.Tag == "!!merge" {
				return nil, NodeError(key, errors.New("want a plain key"))
			}
			if _, isDuplicate := m[key.Value]; isDuplicate {
				return nil, NodeError(key, fmt.Errorf("key %.100q occurs twice", key.Value))
			}
			v, err := jsonValue(n.Content[i+1])
			if err != nil {
				return nil, err
			}
			m[key.Value] = v
		}
		return m, nil
	case yaml.SequenceNode:
		list := make([]any, len(n.Content))
		for i, c := range n.Content {
			var err error
			if list[i], err = jsonValue(c); err != nil {
				return nil, err
			}
		}
		return list, nil
	case yaml.ScalarNode:
		if n.Tag == "!!timestamp" || n.Tag == "!!binary" {
			return n.Value, nil
		}
		var v any
		if err := n.Decode(&v); err != nil {
			return nil, err
		}
		return v, nil
	}
	return nil, NodeError(n, errors.New("aliases are not supported: write the value itself"))
}
