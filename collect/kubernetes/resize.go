package kubernetes

import "polder/lib/fields"

// resize is the state of a pod that is resized in place. Whoever may resize a pod may wish for any size, so the wish in its specification
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

// apply makes a container's requests those that the scheduler counts: the largest of what is wished, what kubelet has allocated and what
// the container has; without the wish if that is infeasible (PodRequests with UseStatusResources in Kubernetes' component-helpers). The
// limits are those in force.
func (r resize) apply(requests, limits *list, status object, in string, complain func(string)) {
	if !r.isPending {
		return
	}
	has := readList(fields.Child(status, "allocatedResources"), in+"allocatedResources", complain)
	actual := readList(fields.Child(status, "resources", "requests"), in+"requests in the status", complain)
	has.max(&actual)
	for i := range has.value {
		if has.known[i] && requests.known[i] && !r.isInfeasible {
			has.value[i] = max(has.value[i], requests.value[i])
		}
	}
	requests.replace(has)
	limits.replace(readList(fields.Child(status, "resources", "limits"), in+"limits in the status", complain))
}
