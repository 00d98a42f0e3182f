/* pause: holds a pod's namespaces and reaps what is left to it. */
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static void end(int signal)
{
	(void)signal;
	_exit(0);
}

static void reap(int signal)
{
	(void)signal;
	while (waitpid(-1, NULL, WNOHANG) > 0)
		;
}

int main(void)
{
	signal(SIGTERM, end);
	signal(SIGINT, end);
	signal(SIGCHLD, reap);
	for (;;)
		pause();
}
