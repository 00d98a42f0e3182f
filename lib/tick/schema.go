package tick

import _ "embed" // for the schema

// Schema is the contract as a JSON Schema (draft 2020-12): every field with its unit.
//
//go:embed schema.json
var Schema []byte
