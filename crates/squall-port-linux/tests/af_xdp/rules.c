/* A driver with room for 16 rules, for LD_PRELOAD: answers ethtool's requests by the kernel's header, keeps the rules in
 * the file $SQUALL_TEST_RULES, as a NIC keeps them after a process has ended, and prints each change. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define ROOM 16

struct table {
	int set[ROOM];
	struct ethtool_rx_flow_spec rules[ROOM];
};

static struct table *table(void)
{
	static struct table *mapped;

	if (mapped == NULL) {
		int file = open(getenv("SQUALL_TEST_RULES"), O_RDWR);

		mapped = mmap(NULL, sizeof(*mapped), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
		if (mapped == MAP_FAILED)
			abort();
	}
	return mapped;
}

static void print(const struct ethtool_rx_flow_spec *rule)
{
	const unsigned char *mask = (const unsigned char *)&rule->m_u, *value = (const unsigned char *)&rule->h_u;

	printf("set %u: type %u", rule->location, rule->flow_type);
	for (size_t i = 0; i < sizeof(rule->m_u); i++)
		if (mask[i] != 0)
			printf(" %zu:%02x&%02x", i, value[i], mask[i]);
	printf(" -> %llu\n", (unsigned long long)rule->ring_cookie);
	fflush(stdout);
}

static int answer(struct ethtool_rxnfc *request)
{
	struct table *nic = table();
	unsigned int location = request->fs.location, count = 0;

	for (unsigned int i = 0; i < ROOM; i++)
		if (nic->set[i] && ++count <= request->rule_cnt && request->cmd == ETHTOOL_GRXCLSRLALL)
			request->rule_locs[count - 1] = i;
	switch (request->cmd) {
	case ETHTOOL_GRXCLSRLCNT:
		request->rule_cnt = count;
		request->data = 0;
		return 0;
	case ETHTOOL_GRXCLSRLALL:
		request->data = ROOM;
		return 0;
	case ETHTOOL_SRXCLSRLINS:
		if (location >= ROOM)
			break;
		nic->set[location] = 1;
		nic->rules[location] = request->fs;
		print(&request->fs);
		return 0;
	case ETHTOOL_GRXCLSRULE:
	case ETHTOOL_SRXCLSRLDEL:
		if (location >= ROOM || !nic->set[location])
			break;
		if (request->cmd == ETHTOOL_GRXCLSRULE) {
			request->fs = nic->rules[location];
			return 0;
		}
		nic->set[location] = 0;
		printf("deleted %u\n", location);
		fflush(stdout);
		return 0;
	}
	errno = EINVAL;
	return -1;
}

int ioctl(int fd, unsigned long number, ...)
{
	int (*next)(int, unsigned long, void *) = (int (*)(int, unsigned long, void *))dlsym(RTLD_NEXT, "ioctl");
	va_list arguments;
	void *argument;

	va_start(arguments, number);
	argument = va_arg(arguments, void *);
	va_end(arguments);
	if (number == SIOCETHTOOL) {
		struct ethtool_rxnfc *request = (void *)((struct ifreq *)argument)->ifr_data;

		if (request->cmd >= ETHTOOL_GRXCLSRLCNT && request->cmd <= ETHTOOL_SRXCLSRLINS)
			return answer(request);
	}
	return next(fd, number, argument);
}
