package sloconfig

import (
	"strings"
	"testing"

	"polder/lib/tick"
)

// A tick's strategies are in force, and the last ones stay while the present ones are unknown.
func TestInForce(t *testing.T) {
	raw := func(diff string) tick.Raw {
		return tick.Raw(`{"koordinator":{"from":"a/b","colocation":{"resourceDiffThreshold":` + diff + `}}}`)
	}
	unread := []tick.SourceError{{Source: "config", Error: "x"}}
	var m InForce
	for _, tt := range []struct {
		name   string
		sample *tick.Sample
		want   float64
		err    string
	}{
		{"none is read", &tick.Sample{}, 0.1, ""},
		{"it could not be read yet", &tick.Sample{Errors: unread}, 0.1, ErrNotRead.Error()},
		{"one", &tick.Sample{Config: raw("0.3")}, 0.3, ""},
		{"no sample", nil, 0.3, ""},
		{"it cannot be read any more", &tick.Sample{Errors: unread}, 0.3, ErrNotRead.Error()},
		{"it is none", &tick.Sample{Config: tick.Raw(`{"koordinator":7}`)}, 0.3, "want strategies as collect writes them"},
		{"another one", &tick.Sample{Config: raw("0.4")}, 0.4, ""},
		{"Katalyst's alone", &tick.Sample{Config: tick.Raw(`{"adminQoS":{}}`)}, 0.1, ""},
	} {
		for range 2 { // the same a second time
			err := m.Update(tt.sample)
			if got := *m.Colocation().ResourceDiffThreshold; got != tt.want || (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
				t.Errorf("%s: %v, %v; want %v, %q", tt.name, got, err, tt.want, tt.err)
			}
		}
	}
}
