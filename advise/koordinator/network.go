package koordinator

import (
	"fmt"

	"polder/advise/network"
	"polder/lib/sloconfig"
	"polder/lib/tick"
)

// Network returns the strategies' network settings of a node that was decided on: the ConfigMap's networkQOS of the classes BE and LS, and
// totalNetworkBandwidth as the uplink's rate. They are the zero value if the class BE's is not enabled.
func (d *Decider) Network(t *tick.Tick) (network.Settings, []string) {
	n := d.Nodes[t.Node]
	if n == nil || n.Last == nil {
		return network.Settings{}, nil
	}
	q := &n.Last.QOS
	if !networkEnabled(q.BE) {
		return network.Settings{}, nil
	}
	if p := q.Policies; p != nil && p.NetQOSPolicy != nil && *p.NetQOSPolicy == sloconfig.NetQOSPolicyTerway {
		return network.Settings{}, []string{fmt.Sprintf("network: netQOSPolicy %s: Terway's own agent applies it: no advice on the network", sloconfig.NetQOSPolicyTerway)}
	}
	s := network.Settings{Batch: shareOf(q.BE.Network)}
	if !s.Batch.Rate.IsSet() { // egressRequest 0, the default: only idle bandwidth
		s.Batch.Rate.BitsPerSecond = 1
	}
	if networkEnabled(q.LS) {
		s.Services = shareOf(q.LS.Network)
	}
	if total := n.Last.System.TotalNetworkBandwidth; total != nil {
		s.LinkBitsPerSecond, _ = total.BitsPerSecond() // it was validated when it was read; an invalid one is 0, which means not set
	}
	return s, nil
}

func networkEnabled(q *sloconfig.ClassQOS) bool {
	return q != nil && q.Network != nil && sloconfig.IsTrue(q.Network.Enable)
}

// shareOf returns a class's share. Invalid values were rejected when they were read, and count as not set here.
func shareOf(q *sloconfig.NetworkQOS) network.Share {
	return network.Share{Rate: bandwidthOf(q.EgressRequest), Ceiling: bandwidthOf(q.EgressLimit)}
}

func bandwidthOf(b *sloconfig.Bandwidth) network.Bandwidth {
	if b == nil {
		return network.Bandwidth{}
	}
	percent, bits, err := b.Parse()
	if err != nil {
		return network.Bandwidth{}
	}
	return network.Bandwidth{Percent: percent, BitsPerSecond: bits}
}
