package sloconfig

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Settings without effect are listed.
func TestUnsupported(t *testing.T) {
	c := LastValid{}.Parse("x", map[string]string{
		KeyColocation: `{"enable":true,"cpuReclaimTresholdPercent":50,"nodeConfigs":[{"name":"n","nodeSelector":{},"extensions":{}}]}`,
		KeyThreshold:  `{"enable":true,"clusterStrategy":{"enable":true}}`,
		KeyQOS: `{"clusterStrategy":{"policies":{"cpuPolicy":"coreSched","netQOSPolicy":"tc"},"cgroupRoot":{"memoryQOS":{"enable":true}},"beClass":{"cpuQOS":{"groupIdentity":-1,"coreExpeller":true},
			"memoryQOS":{"pageCacheLimitEnable":1,"PageCacheLimitSize":2,"pagecache_limit_sync":3},"blkioQOS":{"enable":true,"blocks":[{"name":"pool","type":"volumegroup","ioCfg":{"readLatencies":3}}]},
			"networkQOS":{"enable":true,"ingressLimit":50}},"lsrClass":{"networkQOS":{"enable":true}}}}`,
		KeyBurst:                        "",
		"host-application-config":       `{"applications":[{"name":"nginx"}]}`,
		"cpu-normalization-config":      `{"enable":true}`,
		"resource-amplification-config": " {\n} ",
		"system-config":                 `{"clusterStrategy":{"minFreeKbytesFactor":100}}`,
		"resource-treshold-config":      `{"clusterStrategy":{"enable":true}}`,
	})
	want := []string{
		"cpu-normalization-config", "host-application-config", "resource-treshold-config (unknown)",
		"colocation-config: cpuReclaimTresholdPercent (unknown)", "colocation-config: nodeConfigs[0].extensions",
		"resource-threshold-config: enable (unknown)",
		"resource-qos-config: clusterStrategy.policies.cpuPolicy", "resource-qos-config: clusterStrategy.cgroupRoot.memoryQOS",
		"resource-qos-config: clusterStrategy.beClass.cpuQOS.groupIdentity", "resource-qos-config: clusterStrategy.beClass.cpuQOS.coreExpeller",
		"resource-qos-config: clusterStrategy.beClass.memoryQOS.pageCacheLimitEnable", "resource-qos-config: clusterStrategy.beClass.memoryQOS.PageCacheLimitSize",
		"resource-qos-config: clusterStrategy.beClass.memoryQOS.pagecache_limit_sync", "resource-qos-config: clusterStrategy.beClass.blkioQOS.blocks[0].ioCfg.readLatencies (unknown)",
		"resource-qos-config: clusterStrategy.lsrClass.networkQOS", `resource-qos-config: clusterStrategy.beClass.blkioQOS.blocks[0] (type "volumegroup")`,
		"resource-qos-config: clusterStrategy.beClass.networkQOS.ingressLimit", "system-config: clusterStrategy.minFreeKbytesFactor",
	}
	if got := strings.Join(c.Unsupported, "\n"); got != strings.Join(want, "\n") {
		t.Errorf("unsupported:\n%s\nwant:\n%s", got, strings.Join(want, "\n"))
	}
	if len(c.Problems) > 0 {
		t.Errorf("problems %v", c.Problems)
	}
	many := map[string]string{}
	for i := range 10_000 {
		many[fmt.Sprint("key", i)] = "x"
	}
	var fields strings.Builder
	for i := range 10_000 {
		fmt.Fprintf(&fields, "%q:1,", fmt.Sprint("field", i))
	}
	many[KeyBurst] = "{" + fields.String() + `"clusterStrategy":{}}`
	if c := (LastValid{}).Parse("x", many); len(c.Unsupported) != maxListed+1 || !strings.HasSuffix(c.Unsupported[maxListed], " more") {
		t.Errorf("%d unsupported", len(c.Unsupported))
	}
}

// Supported parts of classes without effect are listed if they are enabled or have a value, and accepted nevertheless.
func TestUnused(t *testing.T) {
	const parts = `"cpuQOS":{"enable":true,"schedIdle":1},"memoryQOS":{"enable":true},"resctrlQOS":{"enable":true,"mbaPercent":50}`
	cluster := func(text string) string { return `{"clusterStrategy":{` + text + `}}` }
	for _, c := range []struct{ text, want string }{
		{cluster(`"lsrClass":{` + parts + `}`), "clusterStrategy.lsrClass.cpuQOS"},
		{cluster(`"lsClass":{` + parts + `}`), "clusterStrategy.lsClass.cpuQOS"},
		{cluster(`"beClass":{` + parts + `}`), ""},
		{cluster(`"lsClass":{"blkioQOS":{"enable":true}},"beClass":{"blkioQOS":{"enable":true,"blocks":[{"name":"/dev/sdb","type":"device"}]}}`), "clusterStrategy.lsClass.blkioQOS"},
		{
			cluster(`"beClass":{"blkioQOS":{"enable":true,"blocks":[{"name":"sdb","type":"device","ioCfg":{"readIOPS":5,"readLatency":3000,"enableUserModel":true}}]}}`),
			"clusterStrategy.beClass.blkioQOS.blocks[0].ioCfg.readLatency clusterStrategy.beClass.blkioQOS.blocks[0].ioCfg.enableUserModel",
		},
		{
			cluster(`"cgroupRoot":{"blkioQOS":{"enable":true,"blocks":[{"name":"sdb","type":"device","ioCfg":{"readLatency":3000,"enableUserModel":true,"ioWeightPercent":50}}]}}`),
			"clusterStrategy.cgroupRoot.blkioQOS.blocks[0].ioCfg.ioWeightPercent",
		},
		{
			cluster(`"cgroupRoot":{` + parts + `,"networkQOS":{"enable":true},"blkioQOS":{"enable":true,"blocks":[]}}`),
			"clusterStrategy.cgroupRoot.cpuQOS clusterStrategy.cgroupRoot.memoryQOS clusterStrategy.cgroupRoot.resctrlQOS clusterStrategy.cgroupRoot.networkQOS",
		},
		{cluster(`"systemClass":{` + parts + `}`), "clusterStrategy.systemClass.cpuQOS clusterStrategy.systemClass.resctrlQOS"},
		{cluster(`"SYSTEMCLASS":{"RESCTRLQOS":{"ENABLE":true}}`), "clusterStrategy.systemClass.resctrlQOS"},
		{cluster(`"systemClass":{"cpuQOS":{"schedIdle":0}}`), "clusterStrategy.systemClass.cpuQOS"},
		{cluster(`"systemClass":{"resctrlQOS":{"catRangeStartPercent":0}}`), "clusterStrategy.systemClass.resctrlQOS"},
		{cluster(`"systemClass":{"resctrlQOS":{"enable":false,"catRangeEndPercent":100}}`), "clusterStrategy.systemClass.resctrlQOS"},
		{cluster(`"systemClass":{"resctrlQOS":{"mbaPercent":100}}`), "clusterStrategy.systemClass.resctrlQOS"},
		{cluster(`"lsClass":{"cpuQOS":{"enable":false}},"systemClass":{"cpuQOS":{},"resctrlQOS":{"enable":false}}`), ""},
		{cluster(`"lsClass":{"cpuQOS":{"enable":null,"schedIdle":null}},"lsrClass":null,"systemClass":{"resctrlQOS":null}`), ""},
		{`{"nodeStrategies":[{"nodeSelector":{},"beClass":{` + parts + `}},{"nodeSelector":{},"lsClass":{` + parts + `}}]}`, "nodeStrategies[1].lsClass.cpuQOS"},
	} {
		m := LastValid{}.Parse("x", data(KeyQOS, c.text))
		var want []string
		for path := range strings.FieldsSeq(c.want) {
			want = append(want, KeyQOS+": "+path)
		}
		if diff := cmp.Diff(want, m.Unsupported); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.text, diff)
		}
		// A rejection would disable the supported ones.
		if _, errs := m.Resolve(nil, nil); len(m.Problems) > 0 || len(errs) > 0 && !strings.Contains(fmt.Sprint(errs), "the first one applies") {
			t.Errorf("%s: problems %v, %v", c.text, m.Problems, errs)
		}
	}
	many := `{"nodeStrategies":[` + strings.Repeat(`{"nodeSelector":{"matchLabels":{"a":"b"}},"systemClass":{`+parts+`}},`, 900) + `{}]}`
	if c := (LastValid{}).Parse("x", data(KeyQOS, many)); len(c.Unsupported) != maxListed {
		t.Errorf("%d unsupported; want %d at most", len(c.Unsupported), maxListed)
	}
}
