package plan

import (
	"fmt"
	"math"
	"strconv"

	"polder/lib/tick"
)

func setSwitch(get func(*tick.Cgroup) *bool) func(*Machine, *tick.Cgroup, *Setting) (bool, error) {
	return func(_ *Machine, c *tick.Cgroup, s *Setting) (bool, error) {
		on := get(c)
		if on == nil {
			return false, nil
		}
		s.text = "0"
		if *on {
			s.text = "1"
		}
		return true, nil
	}
}

func setNumber(get func(*tick.Cgroup) *int64, minimum, maximum int64) func(*Machine, *tick.Cgroup, *Setting) (bool, error) {
	return func(_ *Machine, c *tick.Cgroup, s *Setting) (bool, error) {
		n := get(c)
		switch {
		case n == nil:
			return false, nil
		case *n < minimum || *n > maximum:
			return false, fmt.Errorf("%d refused: want %d to %d", *n, minimum, maximum)
		}
		s.text = strconv.FormatInt(*n, 10)
		return true, nil
	}
}

func setBytes(get func(*tick.Cgroup) *int64, limit bool) func(*Machine, *tick.Cgroup, *Setting) (bool, error) {
	return func(m *Machine, c *tick.Cgroup, s *Setting) (bool, error) {
		n := get(c)
		s.isTighterOnly = c.MemoryTighterOnly
		switch {
		case n == nil:
			return false, nil
		case limit && *n == tick.Unlimited:
			s.text = "max"
			if s.Version == 1 {
				s.text = unlimitedV1(s.Name)
			}
			return true, nil
		case *n < 0:
			return false, fmt.Errorf("%d refused: want a number of bytes", *n)
		case limit && *n < m.PageBytes:
			return false, fmt.Errorf("%d refused: less than one page would leave the cgroup without memory", *n)
		}
		s.text = strconv.FormatInt(*n/m.PageBytes*m.PageBytes, 10) // as the kernel rounds
		return true, nil
	}
}

// unlimitedV1 is version 1's text for no limit. Kernels that have memory.high there misread "-1".
func unlimitedV1(name string) string {
	if name == "memory.high" {
		return strconv.FormatInt(math.MaxInt64, 10)
	}
	return "-1"
}
