package kubernetes

import "polder/lib/fields"

// resize is the state of a pod that is resized in place. Whoever may resize a pod may desire any size, so the size in its specification
// counts only as far as the scheduler counts it.
type resize struct {
	isPending    bool // kubelet has not done it yet
	isInfeasible bool // kubelet will not do it
}

func resizeOf(o object) (r resize) {
	for _, c := range fields.List(o, "status", "conditions") {
		if fields.Text(c, "status") != "True" {
			continue
		}
		switch fields.Text(c, "type") {
		case "PodResizePending":
			r.isPending, r.isInfeasible = true, fields.Text(c, "reason") == "Infeasible"
		case "PodResizeInProgress":
			r.isPending = true
		}
	}
	return r
}

// sizes are the requests of a container or a pod, in Kubernetes' terms: desired by its specification, allocated by kubelet, and actual,
// which are those that it runs with.
type sizes struct{ desired, allocated, actual list }

// resizableKinds are the first of [amounts]: CPU and memory. The other ones cannot be resized.
const resizableKinds = 2

// sizes reads the requests from a status. What the status does not have is as desired, or nothing if that is infeasible.
func (r resize) sizes(desired list, status object, in string, complain func(string)) sizes {
	s := sizes{desired, desired, desired}
	if !r.isPending {
		return s
	}
	if r.isInfeasible {
		s.allocated = desired.withoutResizable()
	}
	if has := fields.Child(status, "allocatedResources"); has != nil {
		s.allocated = desired.withoutResizable()
		s.allocated.replace(readList(has, in+"allocatedResources", complain))
	}
	s.actual = s.allocated
	if has := fields.Child(status, "resources", "requests"); has != nil {
		s.actual = desired.withoutResizable()
		s.actual.replace(readList(has, in+"requests in the status", complain))
	}
	return s
}

func (l list) withoutResizable() list {
	for i := range resizableKinds {
		l.value[i], l.known[i], l.invalid[i] = 0, false, false
	}
	return l
}

// given returns the larger one of what is allocated and what is actual.
func (s sizes) given() list {
	s.allocated.max(&s.actual)
	return s.allocated
}

// limits returns the smaller one of each desired and actual limit: kubelet cannot lower cpu.cfs_quota_us below a burst that is derived from
// the actual limit, and a higher desired limit is not in force yet. An infeasible one does not count.
func (r resize) limits(desired list, status object, in string, complain func(string)) list {
	if !r.isPending {
		return desired
	}
	actual := readList(fields.Child(status, "resources", "limits"), in+"limits in the status", complain)
	for i := range resizableKinds {
		if desired.known[i] && actual.known[i] && !r.isInfeasible {
			actual.value[i] = min(actual.value[i], desired.value[i])
		}
	}
	desired.replace(actual)
	return desired
}

// counted returns what the scheduler counts: the largest of the three, without the desired one if it is infeasible (PodRequests with
// UseStatusResources in Kubernetes' component-helpers). They are compared for the whole pod, of which one container may grow
// and another one shrink.
func (r resize) counted(s sizes) list {
	if r.isInfeasible {
		return s.given()
	}
	given := s.given()
	s.desired.max(&given)
	return s.desired
}

// requestSums sum up the containers' sizes, each as [total] does.
type requestSums struct{ desired, allocated, actual total }

func (t *requestSums) add(s sizes, add func(*total, list)) {
	add(&t.desired, s.desired)
	add(&t.allocated, s.allocated)
	add(&t.actual, s.actual)
}

func (t *requestSums) sum() sizes { return sizes{t.desired.sum(), t.allocated.sum(), t.actual.sum()} }
