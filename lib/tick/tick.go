// Package tick is the contract between the tools: one line of JSON for one node at one instant.
//
// A [Tick] has one section per tool. A tool reads lines with a [Reader], decodes the sections that it needs, and
// splices its own section into the line with [Line.Splice]; it forwards every other byte unchanged. The JSON Schema
// of the contract is [Schema].
//
// Quantities have their unit in their name. A pointer is nil if the value could not be read: unknown is not zero.
package tick

import "time"

// Version is the value of a tick's "v".
const Version = 1

// These are the names of the sections, which are also the JSON keys.
const (
	SectionSample    = "sample"
	SectionAdvice    = "advice"
	SectionIsolation = "isolation"
	SectionEviction  = "eviction"
	SectionReport    = "report"
	// SectionNetwork is the section of isolate --only network.
	SectionNetwork = "network"
)

// Tick is everything that was observed, decided and done on one node at one instant.
type Tick struct {
	V    int       `json:"v"`
	Node string    `json:"node"`
	Time time.Time `json:"time"`

	Sample    *Sample    `json:"sample,omitempty"`
	Advice    *Advice    `json:"advice,omitempty"`
	Isolation *Isolation `json:"isolation,omitempty"`
	Eviction  *Eviction  `json:"eviction,omitempty"`
	Report    *Report    `json:"report,omitempty"`

	// Network is the section of a second isolate process, isolate --only network.
	Network *NetworkIsolation `json:"network,omitempty"`
}

// Ptr returns a pointer to v, for tests with many optional values of one type: new(v) would need a conversion of each constant.
func Ptr[T any](v T) *T { return new(v) }
