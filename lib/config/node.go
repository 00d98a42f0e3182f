package config

import (
	"errors"
	"fmt"

	"go.yaml.in/yaml/v3"
)

// Node is a value of a configuration file with its place in it. A type whose values check themselves has a method
// UnmarshalYAML(*Node) error, and complains with [Complain], so that the complaint has the line.
type Node = yaml.Node

// Scalar is a node's text; lists and maps have none.
func Scalar(n *Node) (string, error) {
	if n.Kind != yaml.ScalarNode {
		return "", Complain(n, errors.New("want a single value"))
	}
	return n.Value, nil
}

// Complain is an error about a node's value, which [Decode] gives its path and line.
func Complain(n *Node, err error) error {
	return &yaml.TypeError{Errors: []string{fmt.Sprintf("line %d: %s", n.Line, err)}}
}

// SetScalar sets a value from a node's text, with the line in the error.
func SetScalar(n *Node, set func(string) error) error {
	text, err := Scalar(n)
	if err != nil {
		return err
	}
	if err := set(text); err != nil {
		return Complain(n, err)
	}
	return nil
}
