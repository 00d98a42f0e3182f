{{- define "polder.name" -}}
{{- if contains "polder" .Release.Name }}{{ .Release.Name | trunc 50 | trimSuffix "-" }}{{ else }}{{ printf "%s-polder" .Release.Name | trunc 50 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "polder.labels" -}}
app.kubernetes.io/name: polder
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- define "polder.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- /* Whether the admission policies are rendered. */ -}}
{{- define "polder.policies" -}}
{{- if or (eq .Values.admissionPolicy "always") (and (eq .Values.admissionPolicy "auto") (.Capabilities.APIVersions.Has "admissionregistration.k8s.io/v1/ValidatingAdmissionPolicy")) }}true{{ end }}
{{- end }}

{{- /* Whether a pod shapes the uplinks. The values of chart 0.1.0, which helm upgrade --reuse-values keeps, have no key network. */ -}}
{{- define "polder.shapes-links" -}}
{{- with .Values.network }}{{ if .enabled }}true{{ end }}{{ end }}
{{- end }}

{{- /* report's targets, separated by commas. */ -}}
{{- define "polder.targets" -}}
{{- join "," (.Values.report.to | default (ternary (list "node" "nodemetric") (list "cnr" "node") (eq .Values.policy "koordinator"))) }}
{{- end }}

{{- /* The eviction rules of the policy. */ -}}
{{- define "polder.rules" -}}
{{- if eq .Values.policy "koordinator" }}BEMemoryEvict,BECPUEvict,MemoryAllocatableEvict,CPUAllocatableEvict,MemoryEvict,CPUEvict{{ else }}reclaimed-resource-pressure-eviction-plugin{{ end }}
{{- end }}

{{- /* The name of the scheduler's profile, of its file and of its Lease. */ -}}
{{- define "polder.profile" -}}
{{ ternary "koord-scheduler" "katalyst-scheduler" (eq .Values.policy "koordinator") }}
{{- end }}

{{- /* The names of the accounts that have the role of a tool (.tool), separated by commas: form containers has one for each tool, form
single has one for all, and with serviceAccount.perTool also one for each tool. */ -}}
{{- define "polder.accounts" -}}
{{- $name := include "polder.name" .root -}}
{{- if eq .root.Values.form "containers" -}}
{{ $name }}-{{ .tool }}
{{- else -}}
{{ $name }}{{ if .root.Values.serviceAccount.perTool }},{{ $name }}-{{ .tool }}{{ end }}
{{- end -}}
{{- end }}

{{- /* The same accounts as the subjects of a role's binding. */ -}}
{{- define "polder.subjects" -}}
{{- range splitList "," (include "polder.accounts" .) }}
- {kind: ServiceAccount, name: {{ . }}, namespace: {{ $.root.Release.Namespace }}}
{{- end }}
{{- end }}

{{- /* The same accounts by the user names that the API server gives them, as a list in JSON. */ -}}
{{- define "polder.users" -}}
{{- $users := list }}
{{- range splitList "," (include "polder.accounts" .) }}
{{- $users = append $users (printf "system:serviceaccount:%s:%s" $.root.Release.Namespace .) }}
{{- end }}
{{- toJson $users }}
{{- end }}

{{- /* How kubelet's CPU manager state is read: file, directory or none. Older values are true for file and false for none. */ -}}
{{- define "polder.kubelet-state" -}}
{{- $state := toString .Values.host.kubeletState -}}
{{ if eq $state "true" }}file{{ else if eq $state "false" }}none{{ else }}{{ $state }}{{ end }}
{{- end }}

{{- /* The path of kubelet's directory in the tools' containers; see polder.kubelet-mount. */ -}}
{{- define "polder.kubelet-root" -}}
{{ ternary "/run/kubelet" .Values.host.kubeletDir (eq (include "polder.kubelet-state" .) "file") }}
{{- end }}

{{- /* A flag's value as the tool reads it: the elements of a list are separated by commas, and a whole number has no exponent. */ -}}
{{- define "polder.flag" -}}
{{- if kindIs "slice" . }}{{ join "," . }}
{{- else if and (kindIs "float64" .) (eq (floor .) .) }}{{ int64 . }}
{{- else }}{{ toString . }}
{{- end }}
{{- end }}

{{- /* The settings of one tool (.tool) as environment variables: those of the chart, overridden by the tool's flags. .port names the port
of its metrics, if that is not named after the tool. */ -}}
{{- define "polder.env" -}}
{{- $v := .root.Values }}
{{- $env := dict }}
{{- if has .tool (list "collect" "isolate") }}
{{- $_ := set $env "kubelet-root" (include "polder.kubelet-root" .root) }}
{{- end }}
{{- if eq .tool "collect" }}
{{- $_ := set $env "in-cluster" "true" }}
{{- $_ := set $env "system-namespace" (printf "kube-system,%s" .root.Release.Namespace) }}
{{- if eq $v.policy "koordinator" }}
{{- $_ := set $env "slo-config" (printf "%s/%s" $v.koordinator.sloConfig.namespace $v.koordinator.sloConfig.name) }}
{{- $_ := set $env "best-effort" "reclaimed" }}
{{- end }}
{{- else if eq .tool "advise" }}
{{- if ne $v.policy "katalyst" }}{{ $_ := set $env "policy" $v.policy }}{{ end }}
{{- if include "polder.shapes-links" .root }}
{{- with $v.network.batchRate }}{{ $_ := set $env "batch-network-rate" . }}{{ end }}
{{- with $v.network.rate }}{{ $_ := set $env "network-rate" . }}{{ end }}
{{- end }}
{{- else if eq .tool "evict" }}
{{- $_ := set $env "action" $v.evict.action }}
{{- $_ := set $env "rules" (include "polder.rules" .root | trim) }}
{{- else if eq .tool "report" }}
{{- $to := include "polder.targets" .root }}
{{- $_ := set $env "to" $to }}
{{- $_ := set $env "output" (ternary "-" "/dev/null" (has "table" (splitList "," $to))) }}
{{- if $v.report.taintNode }}
{{- $_ := set $env "taint-node" "true" }}
{{- end }}
{{- end }}
{{- if $v.metrics.enabled }}
{{- $_ := set $env "metrics-addr" (printf ":%v" (index $v.metrics.ports (.port | default .tool))) }}
{{- end }}
{{- if and $v.dryRun (has .tool (list "isolate" "evict" "report")) }}
{{- $_ := set $env "dry-run" "true" }}
{{- if eq .tool "report" }}
{{- $_ := set $env "to" "table" }}
{{- $_ := set $env "output" "-" }}
{{- $_ := unset $env "taint-node" }}
{{- end }}
{{- end }}
{{- $env = merge (dict) (index $v .tool).flags $env }}
{{- range $flag, $value := $env }}
- {name: {{ printf "POLDER_%s_%s" $.tool $flag | replace "-" "_" | upper }}, value: {{ include "polder.flag" $value | quote }}}
{{- end }}
{{- end }}

{{- /* The ports on which the tools (.tools) serve their metrics. */ -}}
{{- define "polder.metrics-ports" -}}
{{- $m := .root.Values.metrics }}
{{- if $m.enabled }}
ports:
{{- range .tools }}
- {name: {{ . }}-metrics, containerPort: {{ index $m.ports . }}}
{{- end }}
{{- end }}
{{- end }}

{{- define "polder.common-env" -}}
- {name: NODE_NAME, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}
- {name: GOTRACEBACK, value: crash}
{{- range .Values.env }}
- {{ toJson . }}
{{- end }}
{{- end }}

{{- /* The restrictions of all containers. Those that run as root have no capabilities either: they only open files that root owns. */ -}}
{{- define "polder.confined" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
privileged: false
capabilities: {drop: [ALL]}
{{- end }}

{{- /* The same with the one capability of the container that shapes the links. */ -}}
{{- define "polder.confined-network" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
privileged: false
capabilities: {drop: [ALL], add: [NET_ADMIN]}
{{- end }}

{{- define "polder.token-mount" -}}
- {name: api, mountPath: /var/run/secrets/kubernetes.io/serviceaccount, readOnly: true}
{{- end }}

{{- /* The token that automountServiceAccountToken would mount into every container, here only for tools that use the API server. */ -}}
{{- define "polder.token-volume" -}}
- name: api
  projected:
    defaultMode: 0440
    sources:
    - serviceAccountToken: {path: token, expirationSeconds: 3607}
    - configMap: {name: kube-root-ca.crt, items: [{key: ca.crt, path: ca.crt}]}
    - downwardAPI: {items: [{path: namespace, fieldRef: {fieldPath: metadata.namespace}}]}
{{- end }}

{{- define "polder.cgroups-volumes" -}}
- name: cgroups
  hostPath: {path: /sys/fs/cgroup, type: Directory}
{{- if .Values.host.resctrl }}
- name: resctrl
  hostPath: {path: /sys/fs/resctrl, type: Directory}
{{- end }}
{{- end }}

{{- /* The host's cgroups, read-only. On version 1 every hierarchy is a mount of its own, so the mounts below must be read-only, too. */ -}}
{{- define "polder.cgroups-read-only" -}}
- name: cgroups
  mountPath: /sys/fs/cgroup
  readOnly: true
  {{- if semverCompare ">=1.31.0-0" .Capabilities.KubeVersion.Version }}
  recursiveReadOnly: IfPossible
  {{- end }}
{{- end }}

{{- /* L3 cache and memory bandwidth: resctrl, which is a separate mount in sysfs. */ -}}
{{- define "polder.resctrl-mount" -}}
{{- if .root.Values.host.resctrl }}
- {name: resctrl, mountPath: /sys/fs/resctrl{{ if .readOnly }}, readOnly: true{{ end }}}
{{- end }}
{{- end }}

{{- /* The part of kubelet's directory that a tool can read: a copy of the one file, or all of it. */ -}}
{{- define "polder.kubelet-mount" -}}
{{- if eq (include "polder.kubelet-state" .) "file" }}
- {name: kubelet-copy, mountPath: /run/kubelet, readOnly: true}
{{- else if eq (include "polder.kubelet-state" .) "directory" }}
# HostToContainer also propagates the host's unmounts: a volume that stayed mounted here could not be detached from the node.
- {name: kubelet, mountPath: {{ .Values.host.kubeletDir }}, readOnly: true, mountPropagation: HostToContainer}
{{- end }}
{{- end }}

{{- define "polder.kubelet-volumes" -}}
{{- if eq (include "polder.kubelet-state" .) "file" }}
# Kubelet creates this file when it starts. It is never created here: another file in its place would keep kubelet from starting.
- name: kubelet-file
  hostPath: {path: {{ .Values.host.kubeletDir }}/cpu_manager_state, type: File}
- name: kubelet-copy
  emptyDir: {medium: Memory, sizeLimit: 16Mi}
{{- else if eq (include "polder.kubelet-state" .) "directory" }}
- name: kubelet
  hostPath: {path: {{ .Values.host.kubeletDir }}, type: Directory}
{{- end }}
{{- end }}

{{- /* A sidecar that copies the one file for the tools in its pod, and copies it again when kubelet replaces it. The tools start when
there is a copy. */ -}}
{{- define "polder.kubelet-reader" -}}
{{- if eq (include "polder.kubelet-state" .) "file" }}
- name: kubelet-state
  image: {{ include "polder.image" . }}
  imagePullPolicy: {{ .Values.image.pullPolicy }}
  command: [/usr/local/lib/polder/s6/kubelet-state, /host/cpu_manager_state, /run/kubelet/cpu_manager_state]
  restartPolicy: Always
  startupProbe:
    exec: {command: [/bin/sh, -c, 'test -e /run/kubelet/cpu_manager_state']}
    periodSeconds: 1
    timeoutSeconds: 10
    failureThreshold: 60
  securityContext:
    {{- include "polder.confined" . | trim | nindent 4 }}
    # The file belongs to root, which needs no capability to read it.
    runAsUser: 0
    runAsGroup: 0
  resources: {requests: {cpu: 1m, memory: 4Mi}, limits: {memory: 32Mi}}
  volumeMounts:
  - {name: kubelet-file, mountPath: /host/cpu_manager_state, readOnly: true}
  - {name: kubelet-copy, mountPath: /run/kubelet}
{{- end }}
{{- end }}
