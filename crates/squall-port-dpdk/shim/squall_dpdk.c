/* DPDK through a table of plain functions (squall_dpdk.h), which Squall's dpdk port loads at run time.
 *
 * DPDK's fast path is inline functions over structures that change from release to release: they are compiled
 * only here, against the installed release (22.11 or newer). Nothing here knows the contents of a frame. */

#define _GNU_SOURCE
#include "squall_dpdk.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <rte_alarm.h>
#include <rte_dev.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_ethdev.h>
#include <rte_flow.h>
#include <rte_lcore.h>
#include <rte_log.h>
#include <rte_malloc.h>
#include <rte_mbuf.h>
#include <rte_mbuf_dyn.h>
#include <rte_mempool.h>
#include <rte_memzone.h>
#include <rte_prefetch.h>
#include <rte_version.h>

#if RTE_VERSION < RTE_VERSION_NUM(22, 11, 0, 0)
#error "DPDK 22.11 or newer is needed"
#endif

#define CACHE_LINE 64u
/* Octets added to an MTU: Ethernet header and two VLAN tags. */
#define HEADERS (RTE_ETHER_HDR_LEN + 2 * 4)
#define MIN_FRAME RTE_ETHER_HDR_LEN

/* Offloads that a device needs to cut TCP frames. */
#define CUTTING (RTE_ETH_TX_OFFLOAD_TCP_TSO | RTE_ETH_TX_OFFLOAD_TCP_CKSUM | RTE_ETH_TX_OFFLOAD_IPV4_CKSUM)

#define UP(n, to) (((n) + (to) - 1) / (to) * (to))

/* ---- DPDK's log ---- */

/* The last lines of the log, enough to include the reason for a failure. */
static struct {
	pthread_mutex_t lock;
	size_t used;
	char text[4096];
} log_tail = { .lock = PTHREAD_MUTEX_INITIALIZER };

static ssize_t log_write(void *cookie, const char *text, size_t len)
{
	const size_t room = sizeof(log_tail.text);
	size_t take = len < room ? len : room;

	(void)cookie;
	pthread_mutex_lock(&log_tail.lock);
	if (log_tail.used + take > room) {
		size_t forget = log_tail.used + take - room;

		memmove(log_tail.text, log_tail.text + forget, log_tail.used - forget);
		log_tail.used -= forget;
	}
	memcpy(log_tail.text + log_tail.used, text + (len - take), take);
	log_tail.used += take;
	pthread_mutex_unlock(&log_tail.lock);
	return (ssize_t)len;
}

static void sq_log(char *to, size_t room)
{
	pthread_mutex_lock(&log_tail.lock);
	size_t take = log_tail.used < room - 1 ? log_tail.used : room - 1;

	memcpy(to, log_tail.text + (log_tail.used - take), take);
	to[take] = 0;
	log_tail.used = 0;
	pthread_mutex_unlock(&log_tail.lock);
}

/* ---- The EAL ---- */

static int sq_hugepages_fit(uint64_t octets)
{
	/* Hugepages that /sys counts as free may be denied to this container; mapping reserves pages without touching them. */
	void *at = mmap(NULL, octets, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0);

	if (at == MAP_FAILED)
		return 0;
	munmap(at, octets);
	return 1;
}

static int sq_start(int argc, char **argv)
{
	struct sigaction before[NSIG];
	cpu_set_t cpus;
	int outcome;
	FILE *log = fopencookie(NULL, "w", (cookie_io_functions_t){ .write = log_write });

	if (log == NULL)
		return -ENOMEM;
	/* The stream flushes each line, because the log is read right after a failure. */
	setvbuf(log, NULL, _IOLBF, 0);
	rte_openlog_stream(log);

	for (int signal = 1; signal < NSIG; signal++)
		sigaction(signal, NULL, &before[signal]);
	pthread_getaffinity_np(pthread_self(), sizeof(cpus), &cpus);
	outcome = rte_eal_init(argc, argv) < 0 ? (rte_errno != 0 ? -rte_errno : -EINVAL) : 0;
	/* Restores the affinity, because the EAL makes this thread its main one and pins it. */
	pthread_setaffinity_np(pthread_self(), sizeof(cpus), &cpus);
	for (int signal = 1; signal < NSIG; signal++)
		sigaction(signal, &before[signal], NULL);
	/* The EAL always makes this directory, and leaves it empty without shared configuration. */
	rmdir(rte_eal_get_runtime_dir());
	return outcome;
}

/* A registered thread has a cache in each mempool; without one, each mbuf costs an atomic operation. Registrations are
 * limited (RTE_MAX_LCORE), so a thread that ends returns its own. */
static pthread_key_t thread_key;
static pthread_once_t thread_key_once = PTHREAD_ONCE_INIT;

static void unregister(void *unused)
{
	(void)unused;
	rte_thread_unregister();
}

static void make_thread_key(void)
{
	pthread_key_create(&thread_key, unregister);
}

static void register_thread(void)
{
	if (rte_lcore_id() != LCORE_ID_ANY || rte_thread_register() != 0)
		return;
	pthread_once(&thread_key_once, make_thread_key);
	pthread_setspecific(thread_key, &thread_key);
}

/* ---- Mempools that outlive their queue ---- */

/* A frame on its way to another port (net_ring passes mbufs on) needs its pool after the queue is closed. Such a pool
 * is kept here, and freed after its last mbuf has returned. */
static struct {
	pthread_mutex_t lock;
	unsigned int count;
	struct rte_mempool *pools[256];
} retired = { .lock = PTHREAD_MUTEX_INITIALIZER };

static void free_pool(struct rte_mempool *pool)
{
	unsigned int kept = 0;

	pthread_mutex_lock(&retired.lock);
	/* When the list is full, a pool stays until the process ends. */
	if (pool != NULL && retired.count < RTE_DIM(retired.pools))
		retired.pools[retired.count++] = pool;
	for (unsigned int i = 0; i < retired.count; i++) {
		if (rte_mempool_avail_count(retired.pools[i]) == retired.pools[i]->size)
			rte_mempool_free(retired.pools[i]);
		else
			retired.pools[kept++] = retired.pools[i];
	}
	retired.count = kept;
	pthread_mutex_unlock(&retired.lock);
}

/* Names of pools and memory zones are unique within the process. */
static void unique_name(char *name, size_t room, const char *what)
{
	static atomic_uint next;

	snprintf(name, room, "sq_%s_%u", what, atomic_fetch_add(&next, 1));
}

/* ---- Devices ---- */

static struct {
	uint16_t rx_queues;
	uint32_t mtu;
	uint32_t use;
	uint32_t tx_descriptors;
	/* As configured, for rules whose frames several queues get. */
	struct rte_eth_rss_conf rss;
	uint8_t has_rules;
	struct rte_mempool *rx_pools[RTE_MAX_QUEUES_PER_PORT];
} devices[RTE_MAX_ETHPORTS];

/* With a period of 16 bits, the hash is the same after addresses and ports are swapped: both directions of a flow come
 * to one queue (Woo and Park, Scalable TCP Session Monitoring with Symmetric Receive-side Scaling, 2012). */
static uint8_t rss_key[64];

static int rx_ticks_at = -1, tx_ticks_at = -1;
static uint64_t rx_ticks_flag, tx_ticks_flag;

static int find_port(const char *name, uint16_t *port)
{
	uint16_t candidate;

	/* Compares the device's name, too, because a driver may give its port another one. */
	if (rte_eth_dev_get_port_by_name(name, port) == 0)
		return 0;
	RTE_ETH_FOREACH_DEV(candidate) {
		struct rte_eth_dev_info info;

		if (rte_eth_dev_info_get(candidate, &info) == 0 && info.device != NULL &&
		    strcmp(rte_dev_name(info.device), name) == 0) {
			*port = candidate;
			return 0;
		}
	}
	return -ENODEV;
}

static int sq_attach(const char *bus, const char *name, const char *arguments, uint16_t *port)
{
	int outcome;

	free_pool(NULL);
	if (find_port(name, port) == 0)
		return -EEXIST;
	outcome = rte_eal_hotplug_add(bus, name, arguments);
	if (outcome == 0) {
		outcome = find_port(name, port);
		if (outcome != 0)
			rte_eal_hotplug_remove(bus, name);
	}
	return outcome;
}

static int sq_link(uint16_t port, uint32_t *speed_mbps)
{
	struct rte_eth_link link;
	int outcome = rte_eth_link_get_nowait(port, &link);

	if (outcome != 0)
		return outcome;
	/* DPDK returns UINT32_MAX for an unknown speed, which otherwise would read as 4 Pb/s. */
	*speed_mbps = link.link_speed == RTE_ETH_SPEED_NUM_UNKNOWN ? 0 : link.link_speed;
	return link.link_status == RTE_ETH_LINK_UP;
}

static int sq_read_clock(uint16_t port, uint64_t *ticks)
{
	return rte_eth_read_clock(port, ticks);
}

static int sq_describe(uint16_t port, struct sq_device *device)
{
	struct rte_eth_dev_info info;
	struct rte_ether_addr mac;
	uint64_t ticks;
	int outcome = rte_eth_dev_info_get(port, &info);

	if (outcome != 0)
		return outcome;
	memset(device, 0, sizeof(*device));
	snprintf(device->driver, sizeof(device->driver), "%s", info.driver_name);
	if (rte_eth_macaddr_get(port, &mac) == 0 && !rte_is_zero_ether_addr(&mac)) {
		memcpy(device->mac, mac.addr_bytes, sizeof(device->mac));
		device->has_mac = 1;
	}
	device->link_up = sq_link(port, &device->speed_mbps) == 1;
	device->min_mtu = info.min_mtu;
	device->max_mtu = info.max_mtu;
	device->max_tx_queues = info.max_tx_queues;
	device->max_rx_queues = info.max_rx_queues;
	device->socket = rte_eth_dev_socket_id(port);
	if (info.rx_offload_capa & RTE_ETH_RX_OFFLOAD_TIMESTAMP)
		device->offers |= SQ_RX_TIMESTAMP;
	if (info.tx_offload_capa & RTE_ETH_TX_OFFLOAD_SEND_ON_TIMESTAMP)
		device->offers |= SQ_TX_LAUNCH;
	if (info.flow_type_rss_offloads != 0)
		device->offers |= SQ_RSS;
	if (info.rx_offload_capa & RTE_ETH_RX_OFFLOAD_SCATTER)
		device->offers |= SQ_MULTI_SEGS;
	if ((info.tx_offload_capa & CUTTING) == CUTTING)
		device->offers |= SQ_TX_TCP_CUT;
	if (rte_eth_read_clock(port, &ticks) == 0)
		device->offers |= SQ_CLOCK;
	device->rss_entries = info.reta_size;
	return 0;
}

static int setup_rx_queue(uint16_t port, uint16_t queue, const struct sq_config *config, uint32_t descriptors,
                          struct rte_eth_rxconf conf)
{
	char name[RTE_MEMPOOL_NAMESIZE];
	int socket = rte_eth_dev_socket_id(port);
	/* Enough for the device's descriptors, a batch being copied, and the mbufs in a thread's cache, which other threads
	 * cannot take. af_xdp also fills its rings from the pool, and copies sent frames into its mbufs. */
	const uint32_t cache = 256;
	uint32_t count = config->mbufs != 0 ? config->mbufs : 4 * descriptors + SQ_BATCH + 2 * cache;
	/* A whole frame fits one mbuf, because drivers that cannot chain mbufs would drop a longer one. The size
	 * is at least the usual 2 KiB, for which drivers are optimized. */
	uint32_t room = UP((uint32_t)(config->mtu + HEADERS + RTE_ETHER_CRC_LEN), 1024u);
	struct rte_mempool *pool;

	if (room < 2048)
		room = 2048;
	if (room > UINT16_MAX - RTE_PKTMBUF_HEADROOM)
		room = UINT16_MAX - RTE_PKTMBUF_HEADROOM;
	unique_name(name, sizeof(name), "rx");
	pool = rte_pktmbuf_pool_create(name, count, cache, 0, (uint16_t)(room + RTE_PKTMBUF_HEADROOM), socket);
	if (pool == NULL)
		return -rte_errno;
	devices[port].rx_pools[queue] = pool;
	return rte_eth_rx_queue_setup(port, queue, (uint16_t)descriptors, socket, &conf, pool);
}

static void free_rx_pools(uint16_t port)
{
	for (unsigned int queue = 0; queue < devices[port].rx_queues; queue++) {
		if (devices[port].rx_pools[queue] != NULL)
			free_pool(devices[port].rx_pools[queue]);
		devices[port].rx_pools[queue] = NULL;
	}
}

static int sq_configure(uint16_t port, struct sq_config *config)
{
	struct rte_eth_conf conf = { .rxmode = { .mtu = config->mtu } };
	struct rte_eth_dev_info info;
	struct rte_eth_txconf tx_conf;
	struct rte_eth_rxconf rx_conf;
	uint16_t rx_descriptors, tx_descriptors;
	struct rte_flow_error error;
	int outcome = rte_eth_dev_info_get(port, &info);

	if (outcome != 0)
		return outcome;
	/* Some drivers only accept it before the device is configured. */
	if ((config->use & SQ_ISOLATED) && rte_flow_isolate(port, 1, &error) != 0)
		config->use &= ~SQ_ISOLATED;
	if (config->use & SQ_RSS) {
		conf.rxmode.mq_mode = RTE_ETH_MQ_RX_RSS;
		conf.rx_adv_conf.rss_conf.rss_hf =
			info.flow_type_rss_offloads & (RTE_ETH_RSS_IP | RTE_ETH_RSS_TCP | RTE_ETH_RSS_UDP);
		for (size_t i = 0; i < sizeof(rss_key); i++)
			rss_key[i] = i % 2 == 0 ? 0x6d : 0x5a;
		/* The driver's own key stays where another length is needed. */
		if (info.hash_key_size >= 40 && info.hash_key_size <= sizeof(rss_key)) {
			conf.rx_adv_conf.rss_conf.rss_key = rss_key;
			conf.rx_adv_conf.rss_conf.rss_key_len = info.hash_key_size;
			config->use |= SQ_SYMMETRIC;
		}
	}
	if (config->use & SQ_MULTI_SEGS)
		conf.rxmode.offloads |= RTE_ETH_RX_OFFLOAD_SCATTER;
	if (config->use & SQ_RX_TIMESTAMP) {
		conf.rxmode.offloads |= RTE_ETH_RX_OFFLOAD_TIMESTAMP;
		outcome = rte_mbuf_dyn_rx_timestamp_register(&rx_ticks_at, &rx_ticks_flag);
	}
	if (config->use & SQ_TX_TCP_CUT)
		conf.txmode.offloads |= CUTTING;
	if (outcome == 0 && (config->use & SQ_TX_LAUNCH)) {
		conf.txmode.offloads |= RTE_ETH_TX_OFFLOAD_SEND_ON_TIMESTAMP;
		outcome = rte_mbuf_dyn_tx_timestamp_register(&tx_ticks_at, &tx_ticks_flag);
	}
	if (outcome != 0)
		return outcome;

	outcome = rte_eth_dev_configure(port, (uint16_t)config->rx_queues, (uint16_t)config->tx_queues, &conf);
	if (outcome != 0)
		return outcome;
	/* Some drivers apply an MTU only by this call, not when configured. Drivers that refuse it have no limit. */
	if (!(config->use & SQ_BORROWED))
		rte_eth_dev_set_mtu(port, (uint16_t)config->mtu);

	if (config->tx_descriptors == 0)
		config->tx_descriptors = info.default_txportconf.ring_size != 0 ? info.default_txportconf.ring_size : 1024;
	if (config->rx_descriptors == 0)
		config->rx_descriptors = info.default_rxportconf.ring_size != 0 ? info.default_rxportconf.ring_size : 1024;
	tx_descriptors = (uint16_t)config->tx_descriptors;
	rx_descriptors = (uint16_t)config->rx_descriptors;
	outcome = rte_eth_dev_adjust_nb_rx_tx_desc(port, &rx_descriptors, &tx_descriptors);
	if (outcome != 0)
		return outcome;
	config->tx_descriptors = tx_descriptors;
	config->rx_descriptors = rx_descriptors;
	devices[port].mtu = config->mtu;
	devices[port].use = config->use;
	devices[port].rx_queues = (uint16_t)config->rx_queues;
	devices[port].tx_descriptors = tx_descriptors;
	devices[port].rss = conf.rx_adv_conf.rss_conf;

	/* Sets receive queues up first, because af_xdp sends through their memory. */
	rx_conf = info.default_rxconf;
	rx_conf.offloads = conf.rxmode.offloads;
	for (uint16_t queue = 0; outcome == 0 && queue < config->rx_queues; queue++)
		outcome = setup_rx_queue(port, queue, config, rx_descriptors, rx_conf);
	tx_conf = info.default_txconf;
	tx_conf.offloads = conf.txmode.offloads;
	for (uint16_t queue = 0; outcome == 0 && queue < config->tx_queues; queue++)
		outcome = rte_eth_tx_queue_setup(port, queue, tx_descriptors, rte_eth_dev_socket_id(port), &tx_conf);
	if (outcome == 0)
		outcome = rte_eth_dev_start(port);
	if (outcome == 0) {
		/* Sets promiscuous mode, as every port does; devices without address filters refuse it. */
		if (!(config->use & SQ_BORROWED))
			rte_eth_promiscuous_enable(port);
		/* The counters start at 0, because Squall compares them with the frames that it has passed to the device. */
		rte_eth_stats_reset(port);
	}
	return outcome;
}

/* Makes a rule of rte_flow: a pattern of headers, each with the values and the bits to compare, and what to do. */
static int sq_steer(uint16_t port, const struct sq_rule *rule, char *why, size_t room)
{
	const struct rte_flow_attr ingress = { .ingress = 1 };
	const struct rte_eth_rss_conf *spread = &devices[port].rss;
	struct rte_flow_item_eth eth = { .hdr.ether_type = RTE_BE16(RTE_ETHER_TYPE_ARP) };
	struct rte_flow_item_eth eth_mask = { .hdr.ether_type = RTE_BE16(0xffff) };
	struct rte_flow_item_ipv4 ipv4 = { 0 }, ipv4_mask = { 0 };
	struct rte_flow_item_ipv6 ipv6 = { 0 }, ipv6_mask = { 0 };
	struct rte_flow_item_tcp tcp = { .hdr.dst_port = rte_cpu_to_be_16(rule->to_port) };
	struct rte_flow_item_tcp tcp_mask = { .hdr.dst_port = RTE_BE16(0xffff) };
	struct rte_flow_item_udp udp = { .hdr.dst_port = rte_cpu_to_be_16(rule->to_port) };
	struct rte_flow_item_udp udp_mask = { .hdr.dst_port = RTE_BE16(0xffff) };
	struct rte_flow_item pattern[4] = { { .type = RTE_FLOW_ITEM_TYPE_ETH } };
	uint16_t queues[RTE_MAX_QUEUES_PER_PORT];
	struct rte_flow_action_queue first = { .index = 0 };
	struct rte_flow_action_rss all = {
		.types = spread->rss_hf, .key = spread->rss_key, .key_len = spread->rss_key_len,
		.queue = queues, .queue_num = devices[port].rx_queues,
	};
	struct rte_flow_action actions[2] = { { .type = RTE_FLOW_ACTION_TYPE_QUEUE, .conf = &first } };
	struct rte_flow_error error = { 0 };
	uint8_t mask[16] = { 0 };
	unsigned int headers = 1;
	int outcome;

	for (unsigned int bit = 0; bit < rule->bits && bit < 8 * sizeof(mask); bit++)
		mask[bit / 8] |= (uint8_t)(0x80 >> bit % 8);
	if (rule->family == 0) {
		pattern[0].spec = &eth;
		pattern[0].mask = &eth_mask;
	} else if (rule->family == 4) {
		memcpy(&ipv4.hdr.dst_addr, rule->address, 4);
		memcpy(&ipv4_mask.hdr.dst_addr, mask, 4);
		pattern[headers++] = (struct rte_flow_item){ RTE_FLOW_ITEM_TYPE_IPV4, &ipv4, NULL, &ipv4_mask };
	} else {
		memcpy(&ipv6.hdr.dst_addr, rule->address, 16);
		memcpy(&ipv6_mask.hdr.dst_addr, mask, 16);
		pattern[headers++] = (struct rte_flow_item){ RTE_FLOW_ITEM_TYPE_IPV6, &ipv6, NULL, &ipv6_mask };
	}
	/* Drivers accept a header without values more often than one whose values are not compared. */
	if (rule->family != 0 && rule->bits == 0)
		pattern[1].spec = pattern[1].mask = NULL;
	if (rule->protocol == IPPROTO_TCP)
		pattern[headers++] = (struct rte_flow_item){ RTE_FLOW_ITEM_TYPE_TCP, &tcp, NULL, &tcp_mask };
	if (rule->protocol == IPPROTO_UDP)
		pattern[headers++] = (struct rte_flow_item){ RTE_FLOW_ITEM_TYPE_UDP, &udp, NULL, &udp_mask };
	pattern[headers].type = RTE_FLOW_ITEM_TYPE_END;
	/* RSS hashes addresses and ports, which ARP frames lack. */
	if (devices[port].rx_queues > 1 && rule->family != 0) {
		for (uint16_t queue = 0; queue < devices[port].rx_queues; queue++)
			queues[queue] = queue;
		actions[0] = (struct rte_flow_action){ .type = RTE_FLOW_ACTION_TYPE_RSS, .conf = &all };
	}
	actions[1].type = RTE_FLOW_ACTION_TYPE_END;

	outcome = rte_flow_validate(port, &ingress, pattern, actions, &error);
	if (outcome == 0 && rte_flow_create(port, &ingress, pattern, actions, &error) == NULL)
		outcome = rte_errno != 0 ? -rte_errno : -EIO;
	if (outcome == 0)
		devices[port].has_rules = 1;
	else
		snprintf(why, room, "%s", error.message != NULL ? error.message : rte_strerror(-outcome));
	return outcome;
}

static int sq_counters(uint16_t port, struct sq_counters *counters)
{
	struct rte_eth_stats stats;
	int outcome = rte_eth_stats_get(port, &stats);

	if (outcome != 0)
		return outcome;
	*counters = (struct sq_counters){
		.tx_packets = stats.opackets, .tx_octets = stats.obytes, .tx_errors = stats.oerrors,
		.rx_packets = stats.ipackets, .rx_octets = stats.ibytes, .rx_missed = stats.imissed,
		.rx_no_mbuf = stats.rx_nombuf, .rx_errors = stats.ierrors,
	};
	return 0;
}

struct detach_job {
	uint16_t port;
	int outcome;
	sem_t over;
};

static void detach(void *argument)
{
	struct detach_job *job = argument;
	struct rte_eth_dev_info info;
	struct rte_device *device = NULL;
	struct rte_flow_error error;

	if (rte_eth_dev_info_get(job->port, &info) == 0)
		device = info.device;
	if (devices[job->port].has_rules)
		rte_flow_flush(job->port, &error);
	rte_eth_dev_stop(job->port);
	rte_eth_dev_close(job->port);
	job->outcome = device != NULL ? rte_dev_remove(device) : 0;
	sem_post(&job->over);
}

/* Runs in DPDK's own thread, in which drivers handle events: memif (22.11) frees its event handlers without a lock, and
 * sometimes crashed when both ends were in one process and one was closed by another thread. */
static int sq_detach(uint16_t port)
{
	struct detach_job job = { .port = port };

	sem_init(&job.over, 0, 0);
	if (rte_eal_alarm_set(1, detach, &job) == 0) {
		while (sem_wait(&job.over) != 0)
			;
	} else {
		detach(&job);
	}
	sem_destroy(&job.over);
	free_rx_pools(port);
	memset(&devices[port], 0, sizeof(devices[port]));
	return job.outcome;
}

/* ---- Transmit ----
 *
 * The frames of a queue are adjacent, so that a program fills a batch at once, and each has a permanent mbuf. A slot is
 * free while its mbuf's reference count is 0, and the device's while it is 1: the mbufs belong to a mempool whose
 * `enqueue`, which every free finally calls, resets the count to 0. So a frame costs no allocation and no atomic
 * operation, whether it is freed singly or in bulk, and in any thread.
 *
 * For a driver that frees its frames singly and does nothing else (net_null), 64 calls of `enqueue` per batch cost more
 * than atomic decrements: for it (SQ_COUNT_DOWN) the device's count is 2, and freeing brings it to 1. With net_null a
 * frame took 11 ns this way, and 15 ns otherwise (medians of 3 runs in turns). */

struct sq_tx {
	uint16_t port, queue;
	uint8_t registered;
	uint32_t max_frame;
	/* A ring of slots: `held` slots from `oldest` on belong to the device; the slots after them may be lent. */
	uint32_t count, oldest, next, held;
	uint32_t use;
	/* Reference count of an mbuf that the device has. */
	uint16_t device_refcnt;
	struct rte_mempool *pool;
	struct rte_mbuf *mbufs[];
};

/* Eight octets of an mbuf in one store: from `data_off` on (data_off, refcnt, nb_segs, port), and from `pkt_len` on
 * (pkt_len, data_len, vlan_tci). */
typedef uint64_t __attribute__((may_alias, aligned(4))) fields;
static_assert(offsetof(struct rte_mbuf, refcnt) == offsetof(struct rte_mbuf, data_off) + 2, "mbuf layout");
static_assert(offsetof(struct rte_mbuf, nb_segs) == offsetof(struct rte_mbuf, data_off) + 4, "mbuf layout");
static_assert(offsetof(struct rte_mbuf, port) == offsetof(struct rte_mbuf, data_off) + 6, "mbuf layout");

static_assert(offsetof(struct rte_mbuf, data_len) == offsetof(struct rte_mbuf, pkt_len) + 4, "mbuf layout");
static_assert(offsetof(struct rte_mbuf, vlan_tci) == offsetof(struct rte_mbuf, pkt_len) + 6, "mbuf layout");

static int slots_alloc(struct rte_mempool *pool)
{
	(void)pool;
	return 0;
}

static void slots_free(struct rte_mempool *pool)
{
	(void)pool;
}

static int slots_enqueue(struct rte_mempool *pool, void *const *objects, unsigned int n)
{
	(void)pool;
	for (unsigned int i = 0; i < n; i++) {
		struct rte_mbuf *mbuf = objects[i];

		__atomic_store_n((uint16_t *)&mbuf->refcnt, 0, __ATOMIC_RELEASE);
	}
	return 0;
}

static int slots_dequeue(struct rte_mempool *pool, void **objects, unsigned int n)
{
	/* A driver that wants an mbuf from a sent frame's pool, to linearize the frame for example, gets none. */
	(void)pool;
	(void)objects;
	(void)n;
	return -ENOBUFS;
}

/* The acquire pairs with the release in slots_enqueue(), so that a slot is not written before the driver has read it. */
static inline int is_free(const struct rte_mbuf *mbuf, uint16_t device_refcnt)
{
	return __atomic_load_n((const uint16_t *)&mbuf->refcnt, __ATOMIC_ACQUIRE) < device_refcnt;
}

static void count_free(struct rte_mempool *pool, void *free, void *object, unsigned int index)
{
	(void)index;
	*(unsigned int *)free += (unsigned int)is_free(object, (uint16_t)(uintptr_t)pool->pool_config);
}

static unsigned int slots_count(const struct rte_mempool *pool)
{
	unsigned int free = 0;

	rte_mempool_obj_iter((struct rte_mempool *)(uintptr_t)pool, count_free, &free);
	return free;
}

/* Lays out all mbufs, then all frames, in one chunk: drivers that map a pool's memory for a device also map the frames. */
static int slots_populate(struct rte_mempool *pool, unsigned int max, void *at, rte_iova_t iova, size_t len,
                          rte_mempool_populate_obj_cb_t *add, void *argument)
{
	size_t size = pool->header_size + pool->elt_size + pool->trailer_size;

	if (max * size > len)
		return -ENOMEM;
	for (unsigned int i = 0; i < max; i++) {
		size_t offset = i * size + pool->header_size;

		add(pool, argument, (char *)at + offset, iova == RTE_BAD_IOVA ? RTE_BAD_IOVA : iova + offset);
	}
	return (int)max;
}

static const struct rte_mempool_ops slots_ops = {
	.name = "squall_slots",
	.alloc = slots_alloc,
	.free = slots_free,
	.enqueue = slots_enqueue,
	.dequeue = slots_dequeue,
	.get_count = slots_count,
	.populate = slots_populate,
};
RTE_MEMPOOL_REGISTER_OPS(slots_ops)

static void free_memzone(struct rte_mempool_memhdr *chunk, void *zone)
{
	(void)chunk;
	rte_memzone_free(zone);
}

/* An odd number of cache lines, as in squall_port::stride(), with the headroom that drivers expect before a frame. */
static uint32_t stride_of(uint32_t max_frame)
{
	uint32_t lines = (RTE_PKTMBUF_HEADROOM + max_frame + CACHE_LINE - 1) / CACHE_LINE;

	return (lines | 1) * CACHE_LINE;
}

/* Makes the mempool of `count` slots; the first frame is at `*frames`. */
static int make_slots(uint16_t port, uint32_t count, uint32_t max_frame, uint16_t device_refcnt, struct rte_mempool **made, char **frames,
                      rte_iova_t *frames_iova)
{
	struct rte_pktmbuf_pool_private private = { .mbuf_data_room_size = (uint16_t)(RTE_PKTMBUF_HEADROOM + max_frame) };
	int socket = rte_eth_dev_socket_id(port);
	char name[RTE_MEMPOOL_NAMESIZE];
	const struct rte_memzone *zone;
	struct rte_mempool *pool;
	size_t mbufs, all;
	int outcome;

	unique_name(name, sizeof(name), "tx");
	/* The pool has no cache, because each freed mbuf must reach `enqueue`. RTE_MEMPOOL_F_NO_SPREAD omits the padding that
	 * spreads objects over memory channels, because the frames are not in the objects. */
	pool = rte_mempool_create_empty(name, count, sizeof(struct rte_mbuf), 0, sizeof(private), socket,
	                                RTE_MEMPOOL_F_NO_SPREAD);
	if (pool == NULL)
		return -rte_errno;
	outcome = rte_mempool_set_ops_byname(pool, slots_ops.name, (void *)(uintptr_t)device_refcnt);
	if (outcome != 0)
		goto free;
	rte_pktmbuf_pool_init(pool, &private);

	mbufs = UP((size_t)count * (pool->header_size + pool->elt_size + pool->trailer_size), (size_t)CACHE_LINE);
	all = mbufs + RTE_PKTMBUF_HEADROOM + (size_t)count * stride_of(max_frame);
	zone = rte_memzone_reserve_aligned(name, all, socket, RTE_MEMZONE_IOVA_CONTIG, RTE_MEMPOOL_ALIGN);
	if (zone == NULL) {
		outcome = -rte_errno;
		goto free;
	}
	memset(zone->addr, 0, all);
	outcome = rte_mempool_populate_iova(pool, zone->addr, zone->iova, all, free_memzone, (void *)(uintptr_t)zone);
	if (outcome < 0) {
		rte_memzone_free(zone);
		goto free;
	}
	*made = pool;
	*frames = (char *)zone->addr + mbufs + RTE_PKTMBUF_HEADROOM;
	*frames_iova = zone->iova == RTE_BAD_IOVA ? RTE_BAD_IOVA : zone->iova + mbufs + RTE_PKTMBUF_HEADROOM;
	return 0;
free:
	rte_mempool_free(pool);
	return outcome;
}

static void collect(struct rte_mempool *pool, void *next, void *object, unsigned int index)
{
	(void)pool;
	(*(struct rte_mbuf ***)next)[index] = object;
}

static int sq_tx_open(uint16_t port, uint16_t queue, uint32_t max_frame, uint32_t use, struct sq_tx **opened,
                      struct sq_slots *slots)
{
	/* More slots than the device holds at once: some drivers look for completed frames only when their ring is full. */
	uint32_t count = UP(devices[port].tx_descriptors, SQ_BATCH) + 4 * SQ_BATCH;
	uint32_t stride;
	struct rte_mbuf **mbufs;
	struct sq_tx *tx;
	rte_iova_t iova = RTE_BAD_IOVA;
	char *frames = NULL;
	int outcome;

	free_pool(NULL);
	if (max_frame < MIN_FRAME)
		max_frame = MIN_FRAME;
	/* An mbuf's `buf_len` has 16 bits, so longer frames do not fit. */
	if (RTE_PKTMBUF_HEADROOM + max_frame > UINT16_MAX)
		return -EMSGSIZE;
	stride = stride_of(max_frame);
	tx = calloc(1, sizeof(*tx) + count * sizeof(tx->mbufs[0]));
	if (tx == NULL)
		return -ENOMEM;
	tx->port = port;
	tx->queue = queue;
	tx->max_frame = max_frame;
	tx->count = count;
	tx->use = use;
	tx->device_refcnt = use & SQ_COUNT_DOWN ? 2 : 1;
	outcome = make_slots(port, count, max_frame, tx->device_refcnt, &tx->pool, &frames, &iova);
	if (outcome != 0) {
		free(tx);
		return outcome;
	}
	mbufs = tx->mbufs;
	rte_mempool_obj_iter(tx->pool, collect, &mbufs);
	for (uint32_t i = 0; i < count; i++) {
		size_t offset = (size_t)i * stride;
		struct rte_mbuf *mbuf = tx->mbufs[i];

		/* The headroom is the tail of the previous slot, which no frame reaches. */
		mbuf->buf_addr = frames + offset - RTE_PKTMBUF_HEADROOM;
		rte_mbuf_iova_set(mbuf, iova == RTE_BAD_IOVA ? 0 : iova + offset - RTE_PKTMBUF_HEADROOM);
		mbuf->buf_len = (uint16_t)(RTE_PKTMBUF_HEADROOM + max_frame);
		mbuf->pool = tx->pool;
	}
	*slots = (struct sq_slots){ .base = (uint8_t *)frames, .stride = stride, .count = count };
	*opened = tx;
	return 0;
}

static inline void reap(struct sq_tx *tx)
{
	uint32_t oldest = tx->oldest, held = tx->held;

	while (held > 0 && is_free(tx->mbufs[oldest], tx->device_refcnt)) {
		oldest = oldest + 1 == tx->count ? 0 : oldest + 1;
		held--;
	}
	tx->oldest = oldest;
	tx->held = held;
}

static uint32_t sq_tx_lend(struct sq_tx *tx, uint32_t want, uint32_t *first)
{
	uint32_t room;

	reap(tx);
	/* Starts from the front when no frame is in flight: recently used slots are in the cache. */
	if (tx->held == 0)
		tx->next = tx->oldest = 0;
	room = tx->count - tx->held;
	if (room > tx->count - tx->next)
		room = tx->count - tx->next;
	*first = tx->next;
	return want < room ? want : room;
}

/* Returns how many of the next `n` frames precede the first with an invalid length; `*bad` is set to the reason. */
static inline uint32_t fill_mbufs(struct sq_tx *tx, uint32_t n, const uint32_t *lengths, size_t step, int *bad)
{
	const uint64_t first = (uint64_t)RTE_PKTMBUF_HEADROOM | (uint64_t)tx->device_refcnt << 16 | (uint64_t)1 << 32 |
	                       (uint64_t)tx->port << 48;
	const uint32_t max_extra = tx->max_frame - MIN_FRAME;
	struct rte_mbuf *const *mbufs = &tx->mbufs[tx->next];

	for (uint32_t i = 0; i < n; i++) {
		struct rte_mbuf *mbuf = mbufs[i];
		uint32_t len = *(const uint32_t *)((const char *)lengths + i * step);

		/* One comparison for both limits, because a length below the minimum wraps around to a large number. */
		if (unlikely(len - MIN_FRAME > max_extra)) {
			*bad = len < MIN_FRAME ? SQ_TOO_SHORT : SQ_TOO_LONG;
			return i;
		}
		*(fields *)&mbuf->data_off = first;
		*(fields *)&mbuf->pkt_len = (uint64_t)len << 32 | len;
	}
	return n;
}

static void set_launch(struct sq_tx *tx, uint32_t n, const uint64_t *dues, size_t step, const struct sq_clock *clock)
{
	for (uint32_t i = 0; i < n; i++) {
		struct rte_mbuf *mbuf = tx->mbufs[tx->next + i];
		int64_t due = (int64_t) * (const uint64_t *)((const char *)dues + i * step);
		int64_t ticks = clock->ticks + (int64_t)((double)(due - clock->monotonic_ns) * clock->ticks_per_ns);

		*RTE_MBUF_DYNFIELD(mbuf, tx_ticks_at, uint64_t *) = (uint64_t)ticks;
		mbuf->ol_flags |= tx_ticks_flag;
	}
}

static void set_cuts(struct sq_tx *tx, uint32_t n, const struct sq_cut *cuts)
{
	const uint64_t cut = RTE_MBUF_F_TX_TCP_SEG | RTE_MBUF_F_TX_TCP_CKSUM;

	for (uint32_t i = 0; i < n; i++) {
		struct rte_mbuf *mbuf = tx->mbufs[tx->next + i];

		mbuf->ol_flags = 0;
		mbuf->tx_offload = 0;
		if (cuts[i].size == 0)
			continue;
		mbuf->ol_flags = cut | (cuts[i].ipv6 ? RTE_MBUF_F_TX_IPV6 : RTE_MBUF_F_TX_IPV4 | RTE_MBUF_F_TX_IP_CKSUM);
		mbuf->l2_len = cuts[i].l2;
		mbuf->l3_len = cuts[i].l3;
		mbuf->l4_len = cuts[i].l4;
		mbuf->tso_segsz = cuts[i].size;
	}
}

static inline void pass(struct sq_tx *tx, uint32_t n)
{
	tx->next += n;
	if (tx->next == tx->count)
		tx->next = 0;
}

static int sq_tx_send(struct sq_tx *tx, uint32_t n, const uint32_t *lengths, const uint64_t *dues, size_t step,
                      const struct sq_clock *clock, const struct sq_cut *cuts)
{
	int bad = 0;
	uint32_t sent, ready;

	if (n == 0)
		return 0;
	/* Registers at the first call, because one thread opens queues and another uses them. */
	if (unlikely(!tx->registered)) {
		register_thread();
		tx->registered = 1;
	}
	n = fill_mbufs(tx, n, lengths, step, &bad);
	if (unlikely(n == 0)) {
		/* The skipped slot is free, but counts as held until it is the oldest: the ring has no gaps. */
		pass(tx, 1);
		tx->held++;
		return bad;
	}
	ready = n;
	if (tx->use & SQ_TX_TCP_CUT)
		set_cuts(tx, n, cuts);
	if (tx->use & SQ_TX_LAUNCH)
		set_launch(tx, n, dues, step, clock);
	if (tx->use & SQ_TX_TCP_CUT)
		ready = rte_eth_tx_prepare(tx->port, tx->queue, &tx->mbufs[tx->next], (uint16_t)n);
	if (unlikely(ready == 0)) {
		for (uint32_t i = 0; i < n; i++)
			*(uint16_t *)&tx->mbufs[tx->next + i]->refcnt = 0;
		pass(tx, 1);
		tx->held++;
		return SQ_REFUSED;
	}
	sent = rte_eth_tx_burst(tx->port, tx->queue, &tx->mbufs[tx->next], (uint16_t)ready);
	/* Frees the mbufs that the driver did not take, because it will not free them. */
	for (uint32_t i = sent; i < n; i++)
		*(uint16_t *)&tx->mbufs[tx->next + i]->refcnt = 0;
	pass(tx, sent);
	tx->held += sent;
	return (int)sent;
}

static uint32_t sq_tx_held(struct sq_tx *tx)
{
	/* Drivers otherwise free sent frames only when they need the room. Some drivers do not support the call. */
	rte_eth_tx_done_cleanup(tx->port, tx->queue, 0);
	reap(tx);
	return tx->held;
}

static void sq_tx_close(struct sq_tx *tx)
{
	free_pool(tx->pool);
	free(tx);
}

/* ---- Receive ---- */

struct sq_rx {
	uint16_t port, queue;
	uint8_t registered;
	/* Number of mbufs whose frames are lent. */
	uint16_t lent;
	struct sq_region region;
	struct rte_mbuf *mbufs[SQ_BATCH];
};

static int sq_rx_open(uint16_t port, uint16_t queue, struct sq_rx **opened, struct sq_region *region)
{
	const struct rte_mempool *pool = devices[port].rx_pools[queue];
	struct sq_rx *rx = calloc(1, sizeof(*rx));

	if (rx == NULL)
		return -ENOMEM;
	rx->port = port;
	rx->queue = queue;
	/* The driver of af_xdp sends from the same pool, in another thread. */
	if (pool->nb_mem_chunks == 1 && !(devices[port].use & SQ_BORROWED)) {
		const struct rte_mempool_memhdr *chunk = STAILQ_FIRST(&pool->mem_list);

		rx->region = (struct sq_region){ .base = chunk->addr, .octets = chunk->len };
	}
	*region = rx->region;
	*opened = rx;
	return 0;
}

/* Whether all frames can be read where the device wrote them: each in one mbuf of the queue's memory (net_ring passes
 * the sender's mbufs on), and with its tag. */
static int can_lend(const struct sq_rx *rx, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		const struct rte_mbuf *mbuf = rx->mbufs[i];
		uint64_t offset = (uintptr_t)rte_pktmbuf_mtod(mbuf, const uint8_t *) - (uintptr_t)rx->region.base;

		if (mbuf->nb_segs != 1 || (mbuf->ol_flags & RTE_MBUF_F_RX_VLAN_STRIPPED) || offset >= rx->region.octets ||
		    mbuf->data_len > rx->region.octets - offset)
			return 0;
	}
	return 1;
}

/* Copies a frame of one or more mbufs, at most `room` octets of it. Returns the length copied. */
static uint32_t copy_frame(const struct rte_mbuf *mbuf, uint8_t *to, uint32_t room)
{
	uint32_t len = 0;

	for (; mbuf != NULL; mbuf = mbuf->next) {
		uint32_t part = mbuf->data_len < room - len ? mbuf->data_len : room - len;

		memcpy(to + len, rte_pktmbuf_mtod(mbuf, const void *), part);
		len += part;
	}
	return len;
}

/* Puts back the VLAN tag that some drivers strip unasked; all of them strip 802.1Q only. */
static uint32_t restore_tag(const struct rte_mbuf *mbuf, uint8_t *frame, uint32_t len, uint32_t room)
{
	const uint8_t tag[4] = { 0x81, 0x00, (uint8_t)(mbuf->vlan_tci >> 8), (uint8_t)mbuf->vlan_tci };

	/* A tag belongs after the two addresses, which this frame does not have. */
	if (len < 12)
		return len;
	if (len + 4 > room)
		len = room - 4;
	memmove(frame + 16, frame + 12, len - 12);
	memcpy(frame + 12, tag, 4);
	return len + 4;
}

static uint64_t ticks_of(const struct rte_mbuf *mbuf)
{
	return rx_ticks_flag != 0 && (mbuf->ol_flags & rx_ticks_flag) ? *RTE_MBUF_DYNFIELD(mbuf, rx_ticks_at, const uint64_t *) : 0;
}

static uint32_t sq_rx_receive(struct sq_rx *rx, uint8_t *to, uint32_t room, struct sq_frame *frames, uint64_t *now,
                              uint32_t *lent)
{
	struct rte_mbuf **mbufs = rx->mbufs;
	struct timespec time;
	uint64_t offset = 0;
	uint16_t n;

	if (unlikely(!rx->registered)) {
		register_thread();
		rx->registered = 1;
	}
	/* Frees the batch in bulk, so that the pool is accessed once. */
	if (rx->lent > 0)
		rte_pktmbuf_free_bulk(mbufs, rx->lent);
	rx->lent = 0;
	*lent = 0;
	n = rte_eth_rx_burst(rx->port, rx->queue, mbufs, SQ_BATCH);
	if (n == 0)
		return 0;
	/* Reads the clock after the burst, so that no frame is stamped before it has arrived. */
	clock_gettime(CLOCK_MONOTONIC, &time);
	*now = (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;

	/* Prefetches the whole batch first, so that its cache misses overlap. */
	for (uint16_t i = 0; i < n; i++)
		rte_prefetch0(rte_pktmbuf_mtod(mbufs[i], const void *));
	if (likely(can_lend(rx, n))) {
		for (uint16_t i = 0; i < n; i++) {
			const struct rte_mbuf *mbuf = mbufs[i];

			frames[i] = (struct sq_frame){
				.offset = (uintptr_t)rte_pktmbuf_mtod(mbuf, const uint8_t *) - (uintptr_t)rx->region.base,
				.len = mbuf->data_len < room ? mbuf->data_len : room,
				.wire_len = mbuf->pkt_len,
				.ticks = ticks_of(mbuf),
			};
		}
		rx->lent = n;
		*lent = 1;
		return n;
	}
	for (uint16_t i = 0; i < n; i++) {
		const struct rte_mbuf *mbuf = mbufs[i];
		uint32_t len, wire_len = mbuf->pkt_len;

		if (likely(mbuf->nb_segs == 1 && mbuf->data_len <= CACHE_LINE && mbuf->data_off + CACHE_LINE <= mbuf->buf_len)) {
			/* A constant length, which compiles to four moves. */
			memcpy(to + offset, rte_pktmbuf_mtod(mbuf, const void *), CACHE_LINE);
			len = mbuf->data_len;
		} else {
			len = copy_frame(mbuf, to + offset, room);
		}
		if (unlikely(mbuf->ol_flags & RTE_MBUF_F_RX_VLAN_STRIPPED)) {
			len = restore_tag(mbuf, to + offset, len, room);
			wire_len += 4;
		}
		frames[i] = (struct sq_frame){ .offset = offset, .len = len, .wire_len = wire_len, .ticks = ticks_of(mbuf) };
		offset += UP(len, CACHE_LINE);
	}
	rte_pktmbuf_free_bulk(mbufs, n);
	return n;
}

static void sq_rx_close(struct sq_rx *rx)
{
	if (rx->lent > 0)
		rte_pktmbuf_free_bulk(rx->mbufs, rx->lent);
	free(rx);
}

/* ---- The table ---- */

uint32_t squall_dpdk_abi(void)
{
	return SQ_ABI;
}

const struct sq_api *squall_dpdk_api(uint32_t abi)
{
	static struct sq_api api = {
		.abi = SQ_ABI,
		.built_for = RTE_VER_PREFIX " " RTE_STR(RTE_VER_YEAR) "." RTE_STR(RTE_VER_MONTH) "." RTE_STR(RTE_VER_MINOR),
		.hugepages_fit = sq_hugepages_fit,
		.start = sq_start,
		.log = sq_log,
		.attach = sq_attach,
		.describe = sq_describe,
		.configure = sq_configure,
		.steer = sq_steer,
		.link = sq_link,
		.counters = sq_counters,
		.read_clock = sq_read_clock,
		.detach = sq_detach,
		.tx_open = sq_tx_open,
		.tx_lend = sq_tx_lend,
		.tx_send = sq_tx_send,
		.tx_held = sq_tx_held,
		.tx_close = sq_tx_close,
		.rx_open = sq_rx_open,
		.rx_receive = sq_rx_receive,
		.rx_close = sq_rx_close,
	};

	if (abi != SQ_ABI)
		return NULL;
	api.running = rte_version();
	return &api;
}
