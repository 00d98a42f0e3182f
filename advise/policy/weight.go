package policy

import "math"

// Bounds of cgroup v1's cpu.shares.
const (
	MinShares = 2
	MaxShares = 262144
)

// MinQuotaMilliCPU is the smallest quota that the kernel accepts: 1 ms of the usual period of 100 ms.
const MinQuotaMilliCPU = 10

// SharesOf returns the cpu.shares that kubelet calculates from a request in milli-CPU.
func SharesOf(request float64) int64 {
	return int64(min(max(request*1024/1000, MinShares), MaxShares))
}

// WeightOf returns the weight for cpu.shares. For version 2 it is Koordinator's, and kubelet's up to 1.34: proportional. On version 1
// isolate converts the weight to shares by opencontainers' curve, 10^((l*l+125*l)/612 - 7/34) with l = log2(shares), so there it is the
// nearest weight of the curve: the written value is within 1 % of the shares from 1024 on, 2.2 % from 256 on, and below that one step of
// the curve.
func WeightOf(shares int64, version int) int64 {
	if version != 1 {
		return 1 + (shares-MinShares)*9999/(MaxShares-MinShares)
	}
	l := math.Log2(float64(shares))
	return min(max(int64(math.Round(math.Pow(10, (l*l+125*l)/612-7.0/34))), 1), 10000)
}
