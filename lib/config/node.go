package config

import (
	"errors"
	"fmt"

	"go.yaml.in/yaml/v3"
)

// Node is a value of a configuration file with its position. A type that validates its values has a method
// UnmarshalYAML(*Node) error, and returns errors of [NodeError], so that they contain the line.
type Node = yaml.Node

// Scalar returns a node's text; lists and maps are an error.
func Scalar(n *Node) (string, error) {
	if n.Kind != yaml.ScalarNode {
		return "", NodeError(n, errors.New("want a single value"))
	}
	return n.Value, nil
}

// NodeError returns an error about a node's value, to which [Decode] adds path and line.
func NodeError(n *Node, err error) error {
	return &yaml.TypeError{Errors: []string{fmt.Sprintf("line %d: %s", n.Line, err)}}
}

// SetScalar sets a value from a node's text, with the line in the error.
func SetScalar(n *Node, set func(string) error) error {
	text, err := Scalar(n)
	if err != nil {
		return err
	}
	if err := set(text); err != nil {
		return NodeError(n, err)
	}
	return nil
}
