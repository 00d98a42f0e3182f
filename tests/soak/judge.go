package main

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Limits of a flat line. A garbage-collected heap varies by a few hundred KiB, and pages of the program's file come and go.
const (
	rssGrowthRatio, rssGrowthMiB          = 1.20, 2.0
	descriptorRatio, descriptorAllowance  = 1.05, 8.0
	leastTicksRatio                       = 0.9 // of those due by the interval
	warmUpPart, windowPart                = 4, 8
	podsAllowanceRatio, podsAllowancePods = 1.1, 10.0
	diskMostMiB                           = 10.0 // the journal grows and shrinks: isolate rewrites it from 4096 values or 8 MiB on
)

// verdict is the assessment of a record.
type verdict struct {
	tools    map[string]judged
	failures []string
}

// judged is a tool's figures over the run.
type judged struct {
	rss, descriptors, cpu figures
	anonymousLastMiB      float64
	slopeMiBPerHour       float64 // of RSS, after the warm-up
}

// figures are of one value: the first and last sample, the medians just after the warm-up and at the end, the greatest.
type figures struct{ first, warm, end, last, max, mean float64 }

func judge(r record) verdict {
	v := verdict{tools: map[string]judged{}, failures: slices.Clone(r.Failures)}
	n := len(r.Samples)
	if n < 8 {
		v.failures = append(v.failures, fmt.Sprintf("only %d samples: too few to judge", n))
		return v
	}
	warm := n / warmUpPart
	cgroups := summarize(column(r, func(s sample) float64 { return float64(s.Cgroups) }))
	pods := summarize(column(r, func(s sample) float64 { return float64(s.Pods) }))
	for _, tool := range tools {
		rss := column(r, func(s sample) float64 { return s.Tools[tool].RSSMiB })
		j := judged{
			rss:              summarize(rss),
			descriptors:      summarize(column(r, func(s sample) float64 { return float64(s.Tools[tool].Descriptors) })),
			cpu:              summarize(column(r, func(s sample) float64 { return s.Tools[tool].CPUPercent })),
			anonymousLastMiB: r.Samples[n-1].Tools[tool].AnonymousMiB,
			slopeMiBPerHour:  3600 * slope(column(r, func(s sample) float64 { return s.AtSecs })[warm:], rss[warm:]),
		}
		v.tools[tool] = j
		if j.rss.end > j.rss.warm*rssGrowthRatio+rssGrowthMiB {
			v.fail("%s grew from %.1f to %.1f MiB after the warm-up", tool, j.rss.warm, j.rss.end)
		}
		explained := max(1, cgroups.end/max(1, cgroups.warm)) * descriptorRatio
		if j.descriptors.end > j.descriptors.warm*explained+descriptorAllowance {
			v.fail("%s went from %.0f to %.0f descriptors while the cgroups went from %.0f to %.0f", tool, j.descriptors.warm, j.descriptors.end, cgroups.warm, cgroups.end)
		}
	}
	last := r.Samples[n-1]
	if due := last.AtSecs / r.IntervalSecs; float64(last.Ticks) < due*leastTicksRatio {
		v.fail("only %d ticks of %.0f came out of the pipe", last.Ticks, due)
	}
	disk := summarize(column(r, func(s sample) float64 { return float64(s.State) / (1 << 20) }))
	if disk.max > diskMostMiB {
		v.fail("journal and state files grew to %.1f MiB", disk.max)
	}
	if pods.end > cgroups.end*podsAllowanceRatio+podsAllowancePods {
		v.fail("the ticks have %.0f pods where %.0f cgroups are", pods.end, cgroups.end)
	}
	return v
}

func (v *verdict) fail(format string, args ...any) {
	v.failures = append(v.failures, fmt.Sprintf(format, args...))
}

func column(r record, of func(sample) float64) []float64 {
	values := make([]float64, len(r.Samples))
	for i, s := range r.Samples {
		values[i] = of(s)
	}
	return values
}

func summarize(values []float64) figures {
	n := len(values)
	warm, window := n/warmUpPart, max(1, n/windowPart)
	f := figures{
		first: values[0], last: values[n-1], max: slices.Max(values),
		warm: median(values[warm : warm+window]), end: median(values[n-window:]),
	}
	for _, value := range values {
		f.mean += value / float64(n)
	}
	return f
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return (sorted[(len(sorted)-1)/2] + sorted[len(sorted)/2]) / 2
}

// slope is the least-squares line's, of y over x.
func slope(x, y []float64) float64 {
	var sumX, sumY float64
	for i := range x {
		sumX += x[i]
		sumY += y[i]
	}
	meanX, meanY := sumX/float64(len(x)), sumY/float64(len(y))
	var above, below float64
	for i := range x {
		above += (x[i] - meanX) * (y[i] - meanY)
		below += (x[i] - meanX) * (x[i] - meanX)
	}
	if below == 0 {
		return 0
	}
	return above / below
}

// line is the verdict in one sentence.
func (v verdict) line(r record) string {
	if len(v.failures) > 0 {
		return "Not flat: " + strings.Join(v.failures, "; ") + "."
	}
	var slopes []string
	for _, tool := range tools {
		slopes = append(slopes, fmt.Sprintf("%s %+.2f", tool, v.tools[tool].slopeMiBPerHour))
	}
	return "Flat. Slope of resident memory after the warm-up, in MiB per hour: " + strings.Join(slopes, ", ") + ". No tool ended before its time."
}

// summary is the verdict for a terminal.
func summary(r record, v verdict) string {
	var b strings.Builder
	if len(v.tools) > 0 {
		last := r.Samples[len(r.Samples)-1]
		fmt.Fprintf(&b, "%s, %d ticks, %d cgroups made, %d at the end\n", seconds(last.AtSecs), last.Ticks, last.Made, last.Cgroups)
		fmt.Fprintf(&b, "%-8s %32s %9s %20s %20s\n", "", "RSS MiB first/warm/last/max", "MiB/h", "fds first/last/max", "CPU % mean/last/max")
		for _, tool := range tools {
			j := v.tools[tool]
			fmt.Fprintf(&b, "%-8s %32s %+9.2f %20s %20s\n", tool,
				fmt.Sprintf("%.1f %.1f %.1f %.1f", j.rss.first, j.rss.warm, j.rss.last, j.rss.max), j.slopeMiBPerHour,
				fmt.Sprintf("%.0f %.0f %.0f", j.descriptors.first, j.descriptors.last, j.descriptors.max),
				fmt.Sprintf("%.1f %.1f %.1f", j.cpu.mean, j.cpu.last, j.cpu.max))
		}
		fmt.Fprintf(&b, "state %d KiB, logs %d KiB\n", last.State/1024, last.Logs/1024)
	}
	for _, line := range r.Log {
		fmt.Fprintln(&b, "logged:", line)
	}
	fmt.Fprintln(&b, v.line(r))
	return b.String()
}

func seconds(s float64) string {
	return time.Duration(s * float64(time.Second)).Round(time.Second).String()
}
