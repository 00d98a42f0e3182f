package koordinator

import (
	"strings"
	"testing"
	"time"

	"polder/advise/network"
	"polder/lib/tick"
)

// Koordinator's network keys become settings of the shaping, in bits per second and percent as in its code.
func TestNetwork(t *testing.T) {
	for _, c := range []struct {
		name, config, reason string
		want                 network.Settings
	}{
		{"nothing", `{}`, "", network.Settings{}},
		{"not enabled", `{"resourceQOS":{"beClass":{"networkQOS":{"egressRequest":10}}}}`, "", network.Settings{}},
		{"services alone", `{"resourceQOS":{"lsClass":{"networkQOS":{"enable":true,"egressRequest":10}}}}`, "", network.Settings{}},
		{"the defaults", `{"resourceQOS":{"beClass":{"networkQOS":{"enable":true}}}}`, "", network.Settings{Batch: network.Share{Rate: network.Bandwidth{BitsPerSecond: 1}}}},
		{
			"all", `{"system":{"totalNetworkBandwidth":"10G"},"resourceQOS":{"policies":{"netQOSPolicy":"tc"},
			"beClass":{"networkQOS":{"enable":true,"egressRequest":10,"egressLimit":"5G","ingressLimit":50}},"lsClass":{"networkQOS":{"enable":true,"egressRequest":"6G","egressLimit":90}}}}`, "",
			network.Settings{
				Batch:    network.Share{Rate: network.Bandwidth{Percent: 10}, Ceiling: network.Bandwidth{BitsPerSecond: 5e9}},
				Services: network.Share{Rate: network.Bandwidth{BitsPerSecond: 6e9}, Ceiling: network.Bandwidth{Percent: 90}}, LinkBitsPerSecond: 10e9,
			},
		},
		{"Terway's", `{"resourceQOS":{"policies":{"netQOSPolicy":"terway-qos"},"beClass":{"networkQOS":{"enable":true}}}}`, "Terway's own agent", network.Settings{}},
	} {
		d := New(Defaults())
		x := &tick.Tick{V: 1, Node: "n", Time: time.Unix(0, 0), Sample: &tick.Sample{Config: tick.Raw(`{"koordinator":` + c.config + `}`)}}
		d.Decide(x)
		got, reasons := d.Network(x)
		if got.Batch != c.want.Batch || got.Services != c.want.Services || got.LinkBitsPerSecond != c.want.LinkBitsPerSecond || !strings.Contains(strings.Join(reasons, ";"), c.reason) || (c.reason == "") != (len(reasons) == 0) {
			t.Errorf("%s: %+v, %q; want %+v", c.name, got, reasons, c.want)
		}
	}
	if got, _ := New(Defaults()).Network(&tick.Tick{Node: "unknown"}); got.Batch.Rate.IsSet() {
		t.Errorf("a node of which nothing is known: %+v", got)
	}
}
