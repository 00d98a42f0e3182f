package sloconfig

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"polder/lib/fields"
	"polder/lib/quantity"
)

// These are the policies of the network in resource-qos-config's policies.
const (
	NetQOSPolicyTC     = "tc"
	NetQOSPolicyTerway = "terway-qos"
)

// QOSPolicies name the mechanism that applies a class's settings.
type QOSPolicies struct {
	NetQOSPolicy *string `json:"netQOSPolicy,omitempty"`
}

// NetworkQOS is a class's part of the network. Ingress is not shaped; its two keys are read only to report them.
type NetworkQOS struct {
	Enable         *bool      `json:"enable,omitempty"`
	EgressRequest  *Bandwidth `json:"egressRequest,omitempty"`
	EgressLimit    *Bandwidth `json:"egressLimit,omitempty"`
	IngressRequest *Bandwidth `json:"ingressRequest,omitempty"`
	IngressLimit   *Bandwidth `json:"ingressLimit,omitempty"`
}

// System is the part of system-config that the tools use.
type System struct {
	// TotalNetworkBandwidth is the rate of the node's uplink in bits per second.
	TotalNetworkBandwidth *BitRate `json:"totalNetworkBandwidth,omitempty"`
}

// maxBitRate bounds a rate, in bits per second.
const maxBitRate = 1_000_000_000_000_000

// Bandwidth is Koordinator's IntOrString: a number is a percentage of the node's rate, a text is bits per second as a quantity ("50M").
// It is kept as the text "10%" or "50M".
type Bandwidth string

// UnmarshalJSON accepts any value, because the check, which can name the field, rejects an invalid one.
func (b *Bandwidth) UnmarshalJSON(data []byte) error {
	if len(data) > 0 && data[0] == '"' {
		return json.Unmarshal(data, (*string)(b))
	}
	*b = Bandwidth(fields.Clip(string(data)) + "%")
	return nil
}

// MarshalJSON writes it as it was read.
func (b Bandwidth) MarshalJSON() ([]byte, error) {
	if number, isPercent := strings.CutSuffix(string(b), "%"); isPercent {
		if n, err := strconv.ParseInt(number, 10, 64); err == nil {
			return strconv.AppendInt(nil, n, 10), nil
		}
	}
	return json.Marshal(string(b))
}

// Parse returns the percentage, or the bits per second; both are 0 if the value is 0.
func (b Bandwidth) Parse() (percent float64, bitsPerSecond int64, err error) {
	if number, isPercent := strings.CutSuffix(string(b), "%"); isPercent {
		n, err := strconv.ParseInt(number, 10, 64)
		if err != nil || n < 0 || n > 100 {
			return 0, 0, fmt.Errorf("%s: want percent from 0 to 100, or bits per second as a text such as \"50M\"", strings.TrimSuffix(fields.Clip(string(b)), "%"))
		}
		return float64(n), 0, nil
	}
	n, err := parseBitRate(string(b))
	return 0, n, err
}

// BitRate is a quantity of bits per second, as a text or a number.
type BitRate string

// UnmarshalJSON accepts any value, likewise.
func (b *BitRate) UnmarshalJSON(data []byte) error {
	if len(data) > 0 && data[0] == '"' {
		return json.Unmarshal(data, (*string)(b))
	}
	*b = BitRate(fields.Clip(string(data)))
	return nil
}

// BitsPerSecond returns the number.
func (b BitRate) BitsPerSecond() (int64, error) { return parseBitRate(string(b)) }

func parseBitRate(text string) (int64, error) {
	f, err := quantity.Integer(text)
	if err != nil || !(f >= 0 && f <= maxBitRate) {
		return 0, fmt.Errorf("%q: want bits per second, such as 50M, and at most 1P", fields.Clip(text))
	}
	return int64(f), nil
}

func (c *checks) bandwidth(field string, b *Bandwidth) {
	if b == nil {
		return
	}
	if _, _, err := b.Parse(); err != nil {
		c.addFault(field, "%w", err)
	}
}

func (c *checks) network(in string, n *NetworkQOS) {
	c.bandwidth(in+"egressRequest", n.EgressRequest)
	c.bandwidth(in+"egressLimit", n.EgressLimit)
	c.bandwidth(in+"ingressRequest", n.IngressRequest)
	c.bandwidth(in+"ingressLimit", n.IngressLimit)
}

func (s *System) check() []*fault {
	var v checks
	if s.TotalNetworkBandwidth != nil {
		if _, err := s.TotalNetworkBandwidth.BitsPerSecond(); err != nil {
			v.addFault("totalNetworkBandwidth", "%w", err)
		}
	}
	return v.faults
}

// unusedNetwork returns the parts of a class's network without effect: ingress, and the classes for which Koordinator has none.
func (c namedClass) unusedNetwork(q *ResourceQOS) (paths []string) {
	n := c.Network
	if n == nil {
		return nil
	}
	if c.ClassQOS != q.BE && c.ClassQOS != q.LS {
		if IsTrue(n.Enable) || n.EgressRequest != nil || n.EgressLimit != nil || n.IngressRequest != nil || n.IngressLimit != nil {
			paths = append(paths, c.name+".networkQOS")
		}
		return paths
	}
	if n.IngressRequest != nil {
		paths = append(paths, c.name+".networkQOS.ingressRequest")
	}
	if n.IngressLimit != nil {
		paths = append(paths, c.name+".networkQOS.ingressLimit")
	}
	return paths
}
