package source

import (
	"errors"

	"polder/collect/host"
	"polder/lib/tick"
)

// Memory is the whole node's memory.
var Memory = Source{
	Name: "memory",
	Doc:  "/proc/meminfo, zoneinfo (low watermark), vmstat (kswapd) and vm.watermark_scale_factor",
	New:  func(e *Env) Reader { return &memoryReader{host: e.Host} },
}

type memoryReader struct {
	host   *host.Host
	memory tick.NodeMemory

	total, free, available, cache, low, factor, steal, stealRate float64

	before CounterState
	known  bool // before has a reading
}

func (m *memoryReader) Read(r *Round) error {
	m.memory = tick.NodeMemory{}
	r.Sample.Memory = &m.memory
	info, infoErr := m.host.Memory()
	m.memory.TotalBytes = counted(&m.total, info.TotalBytes)
	m.memory.FreeBytes = counted(&m.free, info.FreeBytes)
	m.memory.AvailableBytes = counted(&m.available, info.AvailableBytes)
	m.memory.CacheBytes = counted(&m.cache, info.CachedBytes)
	low, lowErr := m.host.LowWatermarkBytes()
	m.memory.LowWatermarkBytes = known(&m.low, float64(low), lowErr == nil)
	factor, factorErr := m.host.WatermarkScaleFactor()
	m.memory.WatermarkScaleFactor = known(&m.factor, float64(factor), factorErr == nil)
	return errors.Join(infoErr, lowErr, factorErr, m.readKswapd(r))
}

func (m *memoryReader) readKswapd(r *Round) error {
	now := CounterState{Seconds: r.Clock.Seconds()}
	var err error
	if now.Value, err = m.host.KswapdStealPages(); err != nil {
		m.known = false
		return err
	}
	m.memory.KswapdStealPages = known(&m.steal, float64(now.Value), true)
	elapsed := now.Seconds - m.before.Seconds
	if m.known && elapsed > 0 && now.Value >= m.before.Value {
		m.memory.KswapdStealPerSecond = known(&m.stealRate, rounded(float64(now.Value-m.before.Value)/elapsed, 10), true)
	}
	m.before, m.known = now, true
	return nil
}

func (m *memoryReader) Save(s *State) {
	if m.known {
		before := m.before
		s.Kswapd = &before
	}
}

func (m *memoryReader) Load(s *State) {
	if s.Kswapd != nil {
		m.before, m.known = *s.Kswapd, true
	}
}
