package plan

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
	"strconv"
	"strings"

	"polder/lib/clip"
	"polder/lib/cpus"
	"polder/lib/tick"
)

// maxShownBytes is the maximum length of foreign text in a message.
const maxShownBytes = 60

// shownCgroup returns a cgroup's path for a message. Whoever may create a cgroup chooses its name.
func shownCgroup(path string) string { return clip.Text(clip.Clean(path), maxShownBytes) }

// These are names of files that several parts of the package distinguish.
const (
	fileCPUs   = "cpuset.cpus"
	fileMems   = "cpuset.mems"
	fileQuota  = "cpu.cfs_quota_us"
	filePeriod = "cpu.cfs_period_us"
	fileMax    = "cpu.max"
	fileIdle   = "cpu.idle"

	fileBurst    = "cpu.cfs_burst_us"
	fileMaxBurst = "cpu.max.burst"
	fileMin      = "memory.min"
	fileLow      = "memory.low"
	fileSoft     = "memory.soft_limit_in_bytes"
)

// minQuotaMicroseconds is the smallest quota that the kernel accepts (min_cfs_quota_period).
const minQuotaMicroseconds = 1000

// minUnlimitedBytes is the smallest value that version 1 may show for "no limit": LONG_MAX rounded down to pages, of 64 KiB at most.
const minUnlimitedBytes = math.MaxInt64 &^ 0xffff

func isList(name string) bool  { return name == fileCPUs || name == fileMems }
func isBurst(name string) bool { return name == fileBurst || name == fileMaxBurst }
func isQuota(name string) bool { return name == fileQuota || name == fileMax }

// isProtection reports whether a cgroup's value has effect only as far as its ancestors have as much.
func isProtection(name string) bool { return name == fileMin || name == fileLow }

func isBytes(name string) bool {
	return isProtection(name) || name == "memory.high" || name == "memory.max" || name == "memory.limit_in_bytes" || name == fileSoft
}

// WeightFile returns the name of the file that the kernel changes together with cpu.idle.
func WeightFile(version int) string {
	if version == 1 {
		return "cpu.shares"
	}
	return "cpu.weight"
}

// DefaultWeight returns the weight that the kernel gives a cgroup when it is no longer idle.
func DefaultWeight(version int) string {
	if version == 1 {
		return "1024"
	}
	return "100"
}

// Desired returns the text to write, given Observed and Period.
func (s *Setting) Desired() (string, error) {
	switch {
	case isCost(s.Name):
		return s.desiredCost(), nil
	case isPerDevice(s.Name):
		return s.desiredLimits()
	case s.restoresOriginal && isDefault(s.Name):
		return "default " + defaultOf(s.Original), nil
	case s.restoresOriginal:
		return s.Original, nil
	case s.isFileText && isDefault(s.Name):
		return "default " + defaultOf(s.text), nil
	case s.isFileText:
		return s.text, nil
	case isList(s.Name):
		return s.set.String(), nil
	case isQuota(s.Name):
		text, err := s.quotaText()
		if err == nil && s.isTighterOnly && s.isOriginalTighter(text) {
			return s.Original, nil
		}
		return text, err
	case isBurst(s.Name):
		return s.burstText(s.Quota)
	case s.isTighterOnly && isBytes(s.Name):
		return s.tighterText(), nil
	case s.factor > 0:
		return s.multipliedText()
	}
	return s.text, nil
}

// quotaText returns the quota in the file's format, for the present period.
func (s *Setting) quotaText() (string, error) {
	if s.Name == fileQuota {
		return quotaText(s.milli, s.Period, "-1")
	}
	_, period, ok := strings.Cut(s.Observed, " ")
	if !ok {
		return "", fmt.Errorf("cpu.max is %q, want a quota and a period", clip.Text(s.Observed, maxShownBytes))
	}
	text, err := quotaText(s.milli, period, "max")
	return text + " " + period, err
}

// isOriginalTighter reports whether the original quota is a smaller share of a CPU than that of the text. On version 1 both are of the
// present period, as no plan changes it. An original value that cannot be parsed bounds nothing.
func (s *Setting) isOriginalTighter(text string) bool {
	of := func(text string) (share, error) {
		quota, period, ok := strings.Cut(text, " ")
		if !ok {
			period = s.Period
		}
		return shareOf(quota, period)
	}
	original, originalErr := of(s.Original)
	desired, err := of(text)
	return originalErr == nil && err == nil && original < desired
}

// IsOriginalTighter reports whether the original limit stays in force because it is tighter than the one that was asked for.
func (s *Setting) IsOriginalTighter() bool {
	switch {
	case !s.isTighterOnly:
		return false
	case isQuota(s.Name):
		text, err := s.quotaText()
		return err == nil && s.isOriginalTighter(text)
	}
	return isBytes(s.Name) && !isProtection(s.Name) && s.tighterText() != s.text
}

// multipliedText returns the original weight times the factor, up to the kernel's largest.
func (s *Setting) multipliedText() (string, error) {
	largest := int64(maxWeight)
	if s.Version == 1 {
		largest = maxShares
	}
	original, err := strconv.ParseInt(s.Original, 10, 64)
	if err != nil || original < 1 || original > largest {
		return "", fmt.Errorf("the original weight is %q, want 1 to %d", clip.Text(s.Original, maxShownBytes), largest)
	}
	return strconv.FormatInt(min(original*s.factor, largest), 10), nil
}

// MultipliesOriginal reports whether the desired value is a multiple of the original one. Without a journal it must not be written: after
// a restart the multiple would count as the original value.
func (s *Setting) MultipliesOriginal() bool { return s.factor > 0 }

// tighterText returns the smaller of the limit and the cgroup's original one; for a protection the larger. An original value that cannot be
// parsed bounds nothing.
func (s *Setting) tighterText() string {
	if isProtection(s.Name) {
		original, originalErr := protectionOf(s.Original)
		if desired, err := protectionOf(s.text); originalErr != nil || err != nil || desired >= original {
			return s.text
		}
		return s.Original
	}
	original, err := bytesOf(s.Original)
	if err != nil || original < 0 {
		return s.text
	}
	if limit, err := bytesOf(s.text); err != nil || limit >= 0 && limit <= original {
		return s.text
	}
	return s.Original
}

// NeedsOriginal reports whether the desired value depends on the file's original value.
func (s *Setting) NeedsOriginal() bool {
	return s.FollowsOriginal() || isPerDevice(s.Name)
}

// FollowsOriginal reports whether the desired value follows the original one, which is then never overwritten: a limit that is never
// wider, a multiple, or the original value itself.
func (s *Setting) FollowsOriginal() bool {
	return s.isTighterOnly || s.restoresOriginal || s.factor > 0
}

// IsChangedByKernel reports whether the kernel changes the file's value by itself: it takes CPUs that go offline out of the lists of
// version 1, and adapts the costs of a disk.
func IsChangedByKernel(name string) bool { return isList(name) || isCost(name) }

// IsIdleWeight reports whether a weight is one that the kernel sets together with cpu.idle: that of an idle cgroup, or the default, which a
// cgroup has when it is no longer idle.
func IsIdleWeight(name, text string) bool {
	switch name {
	case WeightFile(1):
		return text == "3" || text == DefaultWeight(1)
	case WeightFile(2):
		return text == "0" || text == DefaultWeight(2)
	}
	return false
}

// IsAsDesired reports whether Observed is the desired value. A value that cannot be parsed is not.
func (s *Setting) IsAsDesired() bool {
	desired, err := s.Desired()
	return err == nil && Same(s.Name, s.Observed, desired)
}

// Same reports whether two texts of a file mean the same: the kernel prints lists in its own format, and has several
// texts for no limit.
func Same(name, a, b string) bool {
	if a == b {
		return true
	}
	switch {
	case isList(name):
		x, errX := cpus.Parse(a)
		y, errY := cpus.Parse(b)
		return errX == nil && errY == nil && x.Equals(y)
	case isBytes(name):
		x, errX := bytesOf(a)
		y, errY := bytesOf(b)
		return errX == nil && errY == nil && x == y
	case isDefault(name):
		return defaultOf(a) == defaultOf(b)
	case isCost(name):
		return sameCost(name, a, b)
	case isPerDevice(name):
		x, errX := limitsOf(name, a)
		y, errY := limitsOf(name, b)
		return errX == nil && errY == nil && x == y
	}
	return false
}

// isDefault reports whether the file has a line "default N" beside lines for single devices.
func isDefault(name string) bool { return name == "io.weight" || name == "io.bfq.weight" }

func defaultOf(text string) string {
	for line := range strings.Lines(text) {
		if fields := strings.Fields(line); len(fields) == 2 && fields[0] == "default" {
			return fields[1]
		}
	}
	return strings.TrimSpace(text)
}

func bytesOf(text string) (int64, error) {
	if text == "max" || text == "-1" {
		return -1, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 {
		return 0, fmt.Errorf("%q is not a number of bytes", clip.Text(text, maxShownBytes))
	}
	if n >= minUnlimitedBytes {
		return -1, nil
	}
	return n, nil
}

// periodOf returns a period in microseconds. Its product with maxMilli must not overflow.
func periodOf(text string, maxMilli int64) (int64, error) {
	p, err := strconv.ParseInt(text, 10, 64)
	if err != nil || p <= 0 || p > math.MaxInt64/maxMilli {
		return 0, fmt.Errorf("the period is %q, want microseconds", clip.Text(text, maxShownBytes))
	}
	return p, nil
}

func quotaText(milli int64, period, unlimited string) (string, error) {
	if milli < 0 {
		return unlimited, nil
	}
	p, err := periodOf(period, maxMilliCPU+1)
	if err != nil {
		return "", err
	}
	return strconv.FormatInt(max(milli*p/1000, minQuotaMicroseconds), 10), nil
}

// share is a quota as the kernel compares it between parent and child on version 1: in units of 1/2^20 CPU (to_ratio in
// kernel/sched/core.c).
type share uint64

const unlimitedShare share = math.MaxUint64

// MilliCPU converts a quota's or burst's text, microseconds per period, to thousandths of a CPU; the text of cpu.max includes its period.
// It returns [tick.Unlimited] for no limit, and nil for a text or a period that is not a number.
func MilliCPU(text, period string) *int64 {
	micros, err := microsOf(quotaOf(text))
	switch {
	case err != nil:
		return nil
	case micros < 0:
		return new(int64(tick.Unlimited))
	}
	p, err := strconv.ParseInt(period, 10, 64)
	if err != nil || p <= 0 || micros > (math.MaxInt64-p)/1000 {
		return nil
	}
	return new((micros*1000 + p/2) / p)
}

var errPeriod = errors.New("not a quota and a period in microseconds")

func shareOf(quota, period string) (share, error) {
	if quota == "-1" || quota == "max" {
		return unlimitedShare, nil
	}
	q, errQ := strconv.ParseUint(quota, 10, 44)
	p, errP := strconv.ParseUint(period, 10, 44)
	if errQ != nil || errP != nil || p == 0 {
		return 0, fmt.Errorf("%q %q: %w", clip.Text(quota, maxShownBytes), clip.Text(period, maxShownBytes), errPeriod)
	}
	return share(q << 20 / p), nil
}

// largestQuota returns the largest quota for a period that does not exceed the share.
func (s share) largestQuota(period string) (string, error) {
	if s == unlimitedShare {
		return "-1", nil
	}
	p, err := strconv.ParseUint(period, 10, 44)
	if err != nil || p == 0 {
		return "", fmt.Errorf("%q: %w", clip.Text(period, maxShownBytes), errPeriod)
	}
	hi, lo := bits.Mul64(uint64(s)+1, p) // the smallest quota that exceeds it: shares are rounded down
	lo, borrow := bits.Sub64(lo, 1, 0)
	quota := (hi-borrow)<<44 | lo>>20
	if quota < minQuotaMicroseconds {
		return "", fmt.Errorf("no quota of at least %d us in a period of %s us is within the limit of the cgroup above", minQuotaMicroseconds, period)
	}
	return strconv.FormatUint(quota, 10), nil
}

// sharesOf returns the cpu.shares of version 1 that correspond to a weight of version 2. It inverts the conversion of
// opencontainers/cgroups, weight = ceil(10^((l*l+125*l)/612 - 7/34)) with l = log2(shares), which maps the defaults (100
// and 1024) and the bounds (1 and 2, 10000 and 262144) to each other.
func sharesOf(weight int64) int64 {
	exponent := math.Log10(float64(weight))
	l := (-125 + math.Sqrt(125*125+4*612*(exponent+7.0/34))) / 2
	shares := min(max(int64(math.Round(math.Exp2(l))), 2), maxShares)
	for shares > 2 && weightOf(shares) > weight {
		shares--
	}
	for shares < maxShares && weightOf(shares) < weight {
		shares++
	}
	return shares
}

func weightOf(shares int64) int64 {
	switch {
	case shares <= 2:
		return 1
	case shares >= maxShares:
		return maxWeight
	}
	l := math.Log2(float64(shares))
	return int64(math.Ceil(math.Pow(10, (l*l+125*l)/612.0-7.0/34.0)))
}

// blkioOf returns the weight of 10 to 1000 that version 1's blkio and BFQ use for version 2's 1 to 10000: the inverse of
// opencontainers' 1 + (blkio-10)*9999/990.
func blkioOf(weight int64) int64 { return 10 + (weight-1)*990/9999 }
