{{- /*
A container for each tool. A pod has one service account, so each tool with a token has a pod of its own: collect, evict and report;
advise and isolate have no token and share one. Each tool has its own user, so that a tool in the host's pid namespace cannot access
the others. FIFO n is in a directory n on the host, which only the tools at its two ends mount: report cannot write what isolate
reads. Each tool's heartbeat is beside its output.
*/ -}}
{{- define "polder.tool" -}}
{{- $v := .root.Values }}
- name: {{ .name | default .tool }}
  image: {{ include "polder.image" .root }}
  imagePullPolicy: {{ $v.image.pullPolicy }}
  command:
  - /usr/local/lib/polder/s6/calm
  - /usr/local/bin/{{ .tool }}
  {{- range .args }}
  - {{ . }}
  {{- end }}
  - --heartbeat
  - {{ .beat }}
  env:
  {{- include "polder.common-env" .root | trim | nindent 2 }}
  {{- with include "polder.env" (dict "root" .root "tool" .tool "port" .port) | trim }}{{ nindent 2 . }}{{ end }}
  securityContext:
    {{- include (.confined | default "polder.confined") .root | trim | nindent 4 }}
    {{- if .user }}
    runAsUser: {{ .user }}
    runAsGroup: 65532
    runAsNonRoot: true
    {{- else }}
    runAsUser: 0
    runAsGroup: 0
    {{- end }}
  {{- /* A tick has passed this tool, or waits for the next one; for report it has passed the whole pipe. advise needs no such probe: if it
  hangs, isolate gets no ticks, and the pod that both share is not Ready. */ -}}
  {{- if ne .tool "advise" }}
  readinessProbe:
    exec: {command: [/usr/local/lib/polder/s6/alive, {{ $v.heartbeat.readySeconds | quote }}, {{ .beat }}]}
    periodSeconds: {{ $v.heartbeat.periodSeconds }}
    timeoutSeconds: 10
  {{- end }}
  {{- /* A tool that waits for the next one to read touches its heartbeat, so only the first one that hangs is far behind the one before it. */}}
  livenessProbe:
    exec: {command: [/usr/local/lib/polder/s6/alive, {{ $v.heartbeat.restartSeconds | quote }}, {{ .beat }}{{ with .upstream }}, {{ . }}{{ end }}]}
    {{- if eq .tool "report" }}
    # It begins late, as in form single: report withdraws the offer 3 minutes (its --stale-after) after the last tick or its own start,
    # and must not be restarted before that, even if it seems to hang.
    initialDelaySeconds: 300
    {{- else }}
    initialDelaySeconds: 30
    {{- end }}
    periodSeconds: {{ $v.heartbeat.periodSeconds }}
    timeoutSeconds: 10
    terminationGracePeriodSeconds: 5 # a tool that hangs does not react to SIGTERM
  {{- with include "polder.metrics-ports" (dict "root" .root "tools" (list (.port | default .tool))) | trim }}{{ nindent 2 . }}{{ end }}
  resources: {{- toYaml (index $v (.port | default .tool)).resources | nindent 4 }}
{{- end }}

{{- /* The volumes of a pod for its FIFOs (.fifos, their numbers) and for the container prepare. */ -}}
{{- define "polder.pipe-volumes" -}}
{{- range .fifos }}
- name: pipe-{{ . }}
  hostPath: {path: {{ $.root.Values.host.runDir }}/{{ . }}, type: DirectoryOrCreate}
{{- end }}
- name: run
  hostPath: {path: {{ .root.Values.host.runDir }}, type: DirectoryOrCreate}
{{ include "polder.state-volume" .root | trim }}
{{- end }}

{{- /* Creates the FIFOs and directories with their modes. Each pod has it, because any of them may be the first on a node. */ -}}
{{- define "polder.prepare" -}}
- name: prepare
  image: {{ include "polder.image" . }}
  imagePullPolicy: {{ .Values.image.pullPolicy }}
  command: [/usr/local/lib/polder/s6/prepare]
  securityContext:
    {{- include "polder.confined" . | trim | nindent 4 }}
    runAsUser: 0
    runAsGroup: 65532
  resources: {requests: {cpu: 1m, memory: 8Mi}, limits: {memory: 32Mi}}
  volumeMounts:
  - {name: run, mountPath: /run/polder}
  - {name: state, mountPath: /var/lib/polder}
{{- end }}

{{- define "polder.collect-pod" -}}
initContainers:
{{ include "polder.prepare" . | trim }}
{{- with include "polder.kubelet-reader" . | trim }}{{ nindent 0 . }}{{ end }}
containers:
# No capabilities, and cgroups read-only. It runs as root only where it reads kubelet's own file, which belongs to root.
{{ include "polder.tool" (dict "root" . "tool" "collect" "user" (ternary 0 65521 (eq (include "polder.kubelet-state" .) "directory")) "beat" "/run/polder/1/collect" "args" (list "--output" "fifo:/run/polder/1/ticks.fifo" "--state" "/var/lib/polder/collect.json")) | trim }}
  volumeMounts:
  {{- include "polder.cgroups-read-only" . | trim | nindent 2 }}
  {{- with include "polder.resctrl-mount" (dict "root" . "readOnly" true) | trim }}{{ nindent 2 . }}{{ end }}
  {{- with include "polder.kubelet-mount" . | trim }}{{ nindent 2 . }}{{ end }}
  - {name: pipe-1, mountPath: /run/polder/1}
  - {name: state-collect, mountPath: /var/lib/polder}
  {{- include "polder.token-mount" . | trim | nindent 2 }}
volumes:
{{ include "polder.cgroups-volumes" . | trim }}
{{- with include "polder.kubelet-volumes" . | trim }}{{ nindent 0 . }}{{ end }}
{{ include "polder.pipe-volumes" (dict "root" . "fifos" (list 1)) | trim }}
{{ include "polder.tool-state" (dict "root" . "tool" "collect") | trim }}
{{ include "polder.token-volume" . | trim }}
{{- end }}

{{- define "polder.isolate-pod" -}}
initContainers:
{{ include "polder.prepare" . | trim }}
{{- with include "polder.kubelet-reader" . | trim }}{{ nindent 0 . }}{{ end }}
containers:
{{ include "polder.tool" (dict "root" . "tool" "advise" "user" 65522 "beat" "/run/polder/2/advise" "upstream" "/run/polder/1/collect" "args" (list "--input" "fifo:/run/polder/1/ticks.fifo" "--output" "fifo:/run/polder/2/ticks.fifo" "--state" "/var/lib/polder/advise.json")) | trim }}
  volumeMounts:
  - {name: pipe-1, mountPath: /run/polder/1}
  - {name: pipe-2, mountPath: /run/polder/2}
  - {name: state-advise, mountPath: /var/lib/polder}
# The only container that may write cgroups: root owns their files, and needs no capability to write them. It has no token.
{{ include "polder.tool" (dict "root" . "tool" "isolate" "beat" "/run/polder/3/isolate" "upstream" "/run/polder/2/advise" "args" (list "--input" "fifo:/run/polder/2/ticks.fifo" "--output" "fifo:/run/polder/3/ticks.fifo" "--journal" "/var/lib/polder/isolate.journal")) | trim }}
  volumeMounts:
  - {name: cgroups, mountPath: /sys/fs/cgroup}
  {{- with include "polder.resctrl-mount" (dict "root" .) | trim }}{{ nindent 2 . }}{{ end }}
  {{- with include "polder.kubelet-mount" . | trim }}{{ nindent 2 . }}{{ end }}
  - {name: pipe-2, mountPath: /run/polder/2}
  - {name: pipe-3, mountPath: /run/polder/3}
  - {name: state, mountPath: /var/lib/polder}
volumes:
{{ include "polder.cgroups-volumes" . | trim }}
{{- with include "polder.kubelet-volumes" . | trim }}{{ nindent 0 . }}{{ end }}
{{ include "polder.pipe-volumes" (dict "root" . "fifos" (list 1 2 3)) | trim }}
{{ include "polder.tool-state" (dict "root" . "tool" "advise") | trim }}
{{- end }}

{{- /* A second isolate, between isolate and evict, in the host's network namespace. It has no token, writes no cgroups, and has one
capability, which Kubernetes gives only to root. */ -}}
{{- define "polder.network-pod" -}}
initContainers:
{{ include "polder.prepare" . | trim }}
containers:
{{ include "polder.tool" (dict "root" . "tool" "isolate" "name" "isolate-network" "port" "network" "confined" "polder.confined-network" "beat" "/run/polder/5/isolate-network" "upstream" "/run/polder/3/isolate" "args" (list "--only" "network" "--input" "fifo:/run/polder/3/ticks.fifo" "--output" "fifo:/run/polder/5/ticks.fifo" "--journal" "/var/lib/polder/network.journal")) | trim }}
  volumeMounts:
  {{- include "polder.cgroups-read-only" . | trim | nindent 2 }}
  - {name: pipe-3, mountPath: /run/polder/3}
  - {name: pipe-5, mountPath: /run/polder/5}
  - {name: state-network, mountPath: /var/lib/polder}
volumes:
- name: cgroups
  hostPath: {path: /sys/fs/cgroup, type: Directory}
{{ include "polder.pipe-volumes" (dict "root" . "fifos" (list 3 5)) | trim }}
{{ include "polder.tool-state" (dict "root" . "tool" "network") | trim }}
{{- end }}

{{- define "polder.evict-pod" -}}
{{- $in := ternary 5 3 (eq (include "polder.shapes-links" .) "true") }}
initContainers:
{{ include "polder.prepare" . | trim }}
containers:
{{ include "polder.tool" (dict "root" . "tool" "evict" "user" 65524 "beat" "/run/polder/4/evict" "upstream" (ternary "/run/polder/5/isolate-network" "/run/polder/3/isolate" (eq (include "polder.shapes-links" .) "true")) "args" (list "--input" (printf "fifo:/run/polder/%d/ticks.fifo" $in) "--output" "fifo:/run/polder/4/ticks.fifo" "--state" "/var/lib/polder/evict.json")) | trim }}
  volumeMounts:
  - {name: pipe-{{ $in }}, mountPath: /run/polder/{{ $in }}}
  - {name: pipe-4, mountPath: /run/polder/4}
  - {name: state-evict, mountPath: /var/lib/polder}
  {{- include "polder.token-mount" . | trim | nindent 2 }}
volumes:
{{ include "polder.pipe-volumes" (dict "root" . "fifos" (list $in 4)) | trim }}
{{ include "polder.tool-state" (dict "root" . "tool" "evict") | trim }}
{{ include "polder.token-volume" . | trim }}
{{- end }}

{{- define "polder.report-pod" -}}
initContainers:
{{ include "polder.prepare" . | trim }}
containers:
{{ include "polder.tool" (dict "root" . "tool" "report" "user" 65525 "beat" "/run/polder/report/heartbeat" "upstream" "/run/polder/4/evict" "args" (list "--input" "fifo:/run/polder/4/ticks.fifo")) | trim }}
  volumeMounts:
  - {name: pipe-4, mountPath: /run/polder/4}
  - {name: report, mountPath: /run/polder/report}
  {{- include "polder.token-mount" . | trim | nindent 2 }}
volumes:
{{ include "polder.pipe-volumes" (dict "root" . "fifos" (list 4)) | trim }}
- name: report
  emptyDir: {medium: Memory, sizeLimit: 16Mi}
{{ include "polder.token-volume" . | trim }}
{{- end }}

{{- /* The directory of a tool's state. It is on the host, so that a rollout does not lose decisions. */ -}}
{{- define "polder.tool-state" -}}
- name: state-{{ .tool }}
  hostPath: {path: {{ .root.Values.host.stateDir }}/{{ .tool }}, type: DirectoryOrCreate}
{{- end }}
