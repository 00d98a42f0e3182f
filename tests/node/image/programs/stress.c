/*
 * stress: puts load on a machine, with the options of the program of that name that people use: so many processes that
 * spin, sync, or hold memory. One process a hog and no thread more, so that the load rises by their number. Other than its model it
 * ends at once on SIGTERM as a container's first process too, which saves each test a grace period.
 */
#define _GNU_SOURCE
#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static int quiet, verbose;
static long long vm_bytes = 256LL << 20, vm_stride = 4096, vm_hang = -1;
static int vm_keep;

static void say(const char *level, const char *text, long long n)
{
	if (!quiet) {
		printf("stress: %s: [%d] ", level, getpid());
		printf(text, n);
		printf("\n");
		fflush(stdout);
	}
}

static void wrong(const char *what, const char *value)
{
	fprintf(stderr, "stress: FAIL: [%d] %s: %s\n", getpid(), what, value);
	exit(1);
}

/* number reads digits and a unit of bytes (B, K, M, G) or of time (s, m, h, d). */
static long long number(const char *text, const char *units, const long long *factors)
{
	char *end;
	const char *unit;
	long long n;

	errno = 0;
	n = strtoll(text, &end, 10);
	if (errno || end == text || n < 0)
		wrong("not a number", text);
	if (!*end)
		return n;
	unit = strchr(units, *end);
	if (!unit)
		unit = strchr(units, isupper((unsigned char)*end) ? tolower((unsigned char)*end) : toupper((unsigned char)*end));
	if (!unit || end[1])
		wrong("unknown unit", text);
	return n * factors[unit - units];
}

static long long count(const char *text) { return number(text, "", NULL); }

static long long bytes(const char *text)
{
	static const long long factors[] = {1, 1LL << 10, 1LL << 20, 1LL << 30};
	return number(text, "BKMG", factors);
}

static long long seconds(const char *text)
{
	static const long long factors[] = {1, 60, 3600, 86400};
	return number(text, "smhd", factors);
}

static void spin(void)
{
	volatile double sink;
	for (;;) {
		sink = sqrt(rand());
		(void)sink;
	}
}

static void synchronize(void)
{
	for (;;)
		sync();
}

static void hold(void)
{
	char *memory = NULL;

	for (;;) {
		long long i;
		if (!memory)
			memory = malloc(vm_bytes);
		if (!memory)
			wrong("hogvm malloc failed", strerror(errno));
		for (i = 0; i < vm_bytes; i += vm_stride)
			((volatile char *)memory)[i] = 'Z';
		if (verbose)
			say("dbug", "touched %lld bytes", vm_bytes);
		if (vm_hang == 0)
			for (;;)
				pause();
		if (vm_hang > 0)
			sleep(vm_hang);
		if (!vm_keep) {
			free(memory);
			memory = NULL;
		}
	}
}

static void end(int signal)
{
	(void)signal;
	_exit(0); /* the hogs get their parent's death as a signal */
}

static void start(long long n, void (*hog)(void), long long timeout)
{
	for (; n > 0; n--) {
		pid_t pid = fork();
		if (pid < 0)
			wrong("fork failed", strerror(errno));
		if (pid == 0) {
			signal(SIGTERM, SIG_DFL);
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			alarm(timeout);
			hog();
		}
		if (verbose)
			say("dbug", "--> hog forked: %lld", pid);
	}
}

int main(int argc, char **argv)
{
	enum { VM_BYTES = 256, VM_STRIDE, VM_HANG, VM_KEEP, BACKOFF, VERSION };
	static const struct option options[] = {
		{"cpu", 1, NULL, 'c'}, {"io", 1, NULL, 'i'}, {"vm", 1, NULL, 'm'}, {"timeout", 1, NULL, 't'},
		{"vm-bytes", 1, NULL, VM_BYTES}, {"vm-stride", 1, NULL, VM_STRIDE}, {"vm-hang", 1, NULL, VM_HANG},
		{"vm-keep", 0, NULL, VM_KEEP}, {"backoff", 1, NULL, BACKOFF}, {"verbose", 0, NULL, 'v'},
		{"quiet", 0, NULL, 'q'}, {"version", 0, NULL, VERSION}, {NULL, 0, NULL, 0},
	};
	long long cpu = 0, io = 0, vm = 0, timeout = 0, left;
	int option, status, failed = 0;

	while ((option = getopt_long(argc, argv, "c:i:m:t:vq", options, NULL)) != -1) {
		switch (option) {
		case 'c': cpu = count(optarg); break;
		case 'i': io = count(optarg); break;
		case 'm': vm = count(optarg); break;
		case 't': timeout = seconds(optarg); break;
		case VM_BYTES: vm_bytes = bytes(optarg); break;
		case VM_STRIDE: vm_stride = bytes(optarg); break;
		case VM_HANG: vm_hang = seconds(optarg); break;
		case VM_KEEP: vm_keep = 1; break;
		case BACKOFF: count(optarg); break;
		case 'v': verbose = 1; break;
		case 'q': quiet = 1; break;
		case VERSION: printf("stress (polder's tests)\n"); return 0;
		default: return 1;
		}
	}
	if (optind < argc)
		wrong("unrecognized option", argv[optind]);
	left = cpu + io + vm;
	if (!left || !vm_stride) {
		fprintf(stderr, "Usage: stress [-c N] [-i N] [--vm N [--vm-bytes B] [--vm-stride B] [--vm-hang S] [--vm-keep]] [-t S] [-v] [-q]\n");
		return 1;
	}
	signal(SIGTERM, end);
	say("info", "dispatching hogs: %lld in all", left);
	start(cpu, spin, timeout);
	start(io, synchronize, timeout);
	start(vm, hold, timeout);
	for (; left > 0; left--) {
		if (wait(&status) < 0)
			wrong("wait failed", strerror(errno));
		/* An alarm is its time's end; any other signal, the out-of-memory killer's say, a failure. */
		if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGALRM) {
			failed = 1;
			say("FAIL", "a hog ended with status %lld", status);
			break;
		}
	}
	say("info", failed ? "failed run with status %lld" : "successful run with status %lld", failed);
	return failed;
}
