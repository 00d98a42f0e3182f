// Command cadvisor runs cAdvisor's manager in its smallest configuration: each second the CPU, memory and disk use of each cgroup,
// the last minute of it kept, nothing served and no metric exported. collect's cost is compared with it (../cost_test.go), in a
// module of its own so that Polder does not depend on it.
package main

import (
	"log"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/google/cadvisor/cache/memory"
	"github.com/google/cadvisor/container"
	"github.com/google/cadvisor/manager"
	"github.com/google/cadvisor/utils/sysfs"
)

func main() {
	log.SetFlags(0)
	interval, dynamic := time.Second, false
	m, err := manager.New(memory.New(time.Minute, nil), sysfs.NewRealSysFs(),
		manager.HousekeepingConfig{Interval: &interval, AllowDynamic: &dynamic},
		container.MetricSet{container.CpuUsageMetrics: {}, container.MemoryUsageMetrics: {}, container.DiskIOMetrics: {}},
		http.DefaultClient, []string{"/"}, nil, "", 0)
	if err == nil {
		err = m.Start()
	}
	if err != nil {
		log.Fatalf("cadvisor: %v", err)
	}
	end := make(chan os.Signal, 1)
	signal.Notify(end, os.Interrupt, syscall.SIGTERM)
	<-end
}
