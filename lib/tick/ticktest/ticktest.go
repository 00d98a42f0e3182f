// Package ticktest checks lines against the stream's contract, for the tests of all tools.
package ticktest

import (
	"bytes"
	"fmt"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"polder/lib/tick"
)

var schema = sync.OnceValues(func() (*jsonschema.Schema, error) {
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(tick.Schema))
	if err != nil {
		return nil, err
	}
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	if err := c.AddResource("tick.json", doc); err != nil {
		return nil, err
	}
	return c.Compile("tick.json")
})

// Validate checks one line against the JSON Schema.
func Validate(line []byte) error {
	s, err := schema()
	if err != nil {
		return fmt.Errorf("compile the schema: %w", err)
	}
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(line))
	if err != nil {
		return err
	}
	return s.Validate(v)
}

// ValidateAll checks every line that is not blank.
func ValidateAll(stream []byte) error {
	for i, line := range bytes.Split(stream, []byte("\n")) {
		if len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		if err := Validate(line); err != nil {
			return fmt.Errorf("line %d: %w", i+1, err)
		}
	}
	return nil
}
