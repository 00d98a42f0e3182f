package kubernetes

import (
	"fmt"
	"slices"

	"polder/lib/fields"
	"polder/lib/qos"
	"polder/lib/quantity"
	"polder/lib/tick"
)

// amount is one of the kinds of [tick.Resources], with all names that it has in pods.
type amount struct {
	of    func(*tick.Resources) **float64
	read  func(any) (float64, error)
	names []string
	// unlimited means that a container without a limit may use any amount, so that the pod has no limit either.
	unlimited bool
}

// Names of reclaimed resources: Katalyst's of today and of the guide, and Koordinator's beside those in [qos.BatchCPU].
var (
	katalystCPU    = []string{"resource.katalyst.kubewharf.io/reclaimed_millicpu", "katalyst.kubewharf.io/reclaimed_millicpu"}
	katalystMemory = []string{"resource.katalyst.kubewharf.io/reclaimed_memory", "katalyst.kubewharf.io/reclaimed_memory"}
	midCPU         = []string{"kubernetes.io/mid-cpu"}
	midMemory      = []string{"kubernetes.io/mid-memory"}
)

var amounts = [kinds]amount{
	{func(r *tick.Resources) **float64 { return &r.MilliCPU }, quantity.Milli, []string{"cpu"}, true},
	{func(r *tick.Resources) **float64 { return &r.MemoryBytes }, quantity.Integer, []string{"memory"}, true},
	{func(r *tick.Resources) **float64 { return &r.ReclaimedMilliCPU }, quantity.Integer, slices.Concat(katalystCPU, qos.BatchCPU), false},
	{
		func(r *tick.Resources) **float64 { return &r.ReclaimedMemoryBytes }, quantity.Integer, slices.Concat(katalystMemory, qos.BatchMemory),
		false,
	},
	{func(r *tick.Resources) **float64 { return &r.MidMilliCPU }, quantity.Integer, midCPU, false},
	{func(r *tick.Resources) **float64 { return &r.MidMemoryBytes }, quantity.Integer, midMemory, false},
}

// kinds is the number of amounts.
const kinds = 6

// list has the amounts of one list of resources, in the order of amounts. invalid marks those that could not be read.
type list struct {
	value   [kinds]float64
	known   [kinds]bool
	invalid [kinds]bool
}

// readList reads one list. Several names of an amount denote the same resource, so the greatest value counts.
func readList(o object, where string, complain func(string)) (l list) {
	for i, a := range amounts {
		for _, name := range a.names {
			v, there := o[name]
			if !there {
				continue
			}
			n, err := a.read(v)
			if err != nil {
				complain(fmt.Sprintf("%s.%s: %v", where, name, err))
				l.invalid[i] = true
				continue
			}
			l.value[i], l.known[i] = max(l.value[i], n), true
		}
	}
	return l
}

func (l *list) add(m *list) {
	for i := range l.value {
		l.value[i] += m.value[i]
		l.known[i] = l.known[i] || m.known[i]
		l.invalid[i] = l.invalid[i] || m.invalid[i]
	}
}

func (l *list) max(m *list) {
	for i := range l.value {
		l.value[i] = max(l.value[i], m.value[i])
		l.known[i] = l.known[i] || m.known[i]
		l.invalid[i] = l.invalid[i] || m.invalid[i]
	}
}

// resources is the list as a tick has it, nil where it is empty. An amount of which a part could not be read is
// absent, because the rest would look like the whole.
func (l *list) resources() *tick.Resources {
	var out tick.Resources
	for i, a := range amounts {
		if l.known[i] && !l.invalid[i] {
			*a.of(&out) = new(l.value[i])
		}
	}
	if out == (tick.Resources{}) {
		return nil
	}
	return &out
}

// total sums containers up as the scheduler does: the containers that run at the same time, or, if it is more, the need of the init
// containers before them, which run one after the other beside the sidecars.
type total struct{ run, sidecars, init list }

func (t *total) addRegular(l list) { t.run.add(&l) }

func (t *total) addInit(l list, isSidecar bool) {
	if isSidecar {
		t.run.add(&l)
		t.sidecars.add(&l)
		l = t.sidecars
	} else {
		l.add(&t.sidecars)
	}
	t.init.max(&l)
}

func (t *total) sum() list {
	l := t.run
	l.max(&t.init)
	return l
}

// requested shows which dialect's reclaimed resources a pod requests.
type requested struct{ batch, reclaimed bool }

func (r *requested) note(o object) {
	has := func(names []string) bool {
		return slices.ContainsFunc(names, func(n string) bool {
			amount, err := quantity.Integer(o[n])
			return err == nil && amount > 0 // a template's 0 requests nothing
		})
	}
	r.batch = r.batch || has(qos.BatchCPU) || has(qos.BatchMemory)
	r.reclaimed = r.reclaimed || has(katalystCPU) || has(katalystMemory)
}

// read reads the containers and sums up their requests and limits.
func (p *Pod) read(o object, complain func(string)) requested {
	var requests requestSums
	var limits total
	var names requested
	unlimited := [kinds]bool{}
	policy := fields.Text(o, "spec", "restartPolicy")
	never, always := policy == "Never", policy != "Never" && policy != "OnFailure"

	resizing := resizeOf(o)
	one := func(c object, statuses map[string]object, once, never bool) (sizes, list) {
		out := container(c, statuses, once, never)
		in := "container " + fields.Clip(out.Name) + ": "
		request, limit := fields.Child(c, "resources", "requests"), fields.Child(c, "resources", "limits")
		status := statuses[fields.Text(c, "name")]
		r := resizing.sizes(readList(request, in+"requests", complain), status, in, complain)
		l := resizing.limits(readList(limit, in+"limits", complain), status, in, complain)
		given := r.given()
		out.Requests, out.Limits = given.resources(), l.resources()
		names.note(request)
		p.Containers = append(p.Containers, out)
		for i, a := range amounts {
			unlimited[i] = unlimited[i] || a.unlimited && !l.known[i]
		}
		return r, l
	}
	inits := statuses(o, "initContainerStatuses")
	for _, c := range fields.List(o, "spec", "initContainers") {
		isSidecar := fields.Text(c, "restartPolicy") == "Always"
		r, l := one(c, inits, !isSidecar, !isSidecar && never)
		requests.add(r, func(t *total, l list) { t.addInit(l, isSidecar) })
		limits.addInit(l, isSidecar)
	}
	containers := statuses(o, "containerStatuses")
	for _, c := range fields.List(o, "spec", "containers") {
		r, l := one(c, containers, !always, never)
		requests.add(r, (*total).addRegular)
		limits.addRegular(l)
	}
	ephemeral := statuses(o, "ephemeralContainerStatuses")
	for _, c := range fields.List(o, "spec", "ephemeralContainers") { // they have no resources of their own
		p.Containers = append(p.Containers, container(c, ephemeral, true, true))
	}

	request, limit := resizing.counted(requests.sum()), limits.sum()
	for i := range limit.known {
		limit.known[i] = limit.known[i] && !unlimited[i]
	}
	// Resources of the pod as a whole replace the sums.
	whole := readList(fields.Child(o, "spec", "resources", "requests"), "pod: requests", complain)
	if whole != (list{}) {
		whole = resizing.counted(resizing.sizes(whole, fields.Child(o, "status"), "pod: ", complain))
	}
	request.replace(whole)
	wholeLimit := readList(fields.Child(o, "spec", "resources", "limits"), "pod: limits", complain)
	if wholeLimit != (list{}) {
		wholeLimit = resizing.limits(wholeLimit, fields.Child(o, "status"), "pod: ", complain)
	}
	limit.replace(wholeLimit)
	overhead := readList(fields.Child(o, "spec", "overhead"), "pod: overhead", complain)
	request.add(&overhead)
	for i := range overhead.known { // an overhead alone makes no limit
		overhead.known[i] = false
	}
	limit.add(&overhead)
	p.Tick.Requests, p.Tick.Limits = request.resources(), limit.resources()
	return names
}

func (l *list) replace(m list) {
	for i := range l.value {
		if m.known[i] || m.invalid[i] {
			l.value[i], l.known[i], l.invalid[i] = m.value[i], m.known[i], m.invalid[i]
		}
	}
}
