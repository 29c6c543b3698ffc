/* Interface between the shim and Squall's dpdk port: one table of functions and one version number. Plain C types
 * only, so that nothing here depends on DPDK's headers, whose inline functions and structures differ from release to
 * release. */
#ifndef SQUALL_DPDK_H
#define SQUALL_DPDK_H

#include <stddef.h>
#include <stdint.h>

/* Changes with any declaration below; src/shim.rs has the same number and layouts. */
#define SQ_ABI 3

/* Maximum number of frames in a batch (squall_port::BATCH). */
#define SQ_BATCH 64

/* Results of tx_send for a frame that cannot be sent. */
#define SQ_TOO_LONG (-1)
#define SQ_TOO_SHORT (-2)
#define SQ_REFUSED (-3) /* by the driver: it cannot cut the frame */

/* Bits of `offers` and `use`. */
#define SQ_RX_TIMESTAMP 1u
#define SQ_TX_LAUNCH 2u
#define SQ_RSS 4u
#define SQ_MULTI_SEGS 8u
#define SQ_CLOCK 16u
#define SQ_BORROWED 64u /* the device uses a kernel interface, whose settings must not be changed */
#define SQ_TX_TCP_CUT 128u /* the device cuts TCP frames, and computes the checksums of the pieces */
#define SQ_SYMMETRIC 256u /* set by configure: RSS gives both directions of a flow to one queue */
#define SQ_ISOLATED 512u /* only frames of rules arrive; configure clears it if the driver cannot do that */
#define SQ_COUNT_DOWN 32u /* for a transmit queue: the driver frees frames singly, and does little else */

struct sq_device {
	char driver[64];
	uint8_t mac[6];
	uint8_t link_up;
	uint8_t has_mac;
	uint32_t speed_mbps; /* 0: unknown */
	uint32_t min_mtu, max_mtu;
	uint32_t max_tx_queues, max_rx_queues;
	uint32_t offers;
	int32_t socket;
	uint32_t rss_entries; /* in the table from hashes to queues; 0: none */
};

struct sq_config {
	uint32_t tx_queues, rx_queues;
	uint32_t mtu;
	uint32_t tx_descriptors, rx_descriptors; /* 0: the driver's default */
	uint32_t mbufs;                          /* per receive queue; 0: as many as the queue needs */
	uint32_t use;
};

struct sq_counters {
	uint64_t tx_packets, tx_octets, tx_errors;
	uint64_t rx_packets, rx_octets, rx_missed, rx_no_mbuf, rx_errors;
};

/* Frames for the receive queues of a port: ARP frames, or packets to addresses that begin with the same bits. */
struct sq_rule {
	uint8_t address[16]; /* destination; with IPv4 in the first four octets */
	uint8_t family;      /* 4, 6; 0: ARP */
	uint8_t bits;        /* length of the prefix to compare */
	uint8_t protocol;    /* 6 (TCP), 17 (UDP); 0: all packets */
	uint8_t unused;
	uint16_t to_port;    /* destination port; with a protocol */
};

/* The same time on CLOCK_MONOTONIC and on the device's clock. */
struct sq_clock {
	int64_t monotonic_ns;
	int64_t ticks;
	double ticks_per_ns;
};

/* Memory of a receive queue's mbufs. */
struct sq_region {
	const uint8_t *base;
	uint64_t octets; /* 0: frames are always copied */
};

struct sq_frame {
	uint64_t offset; /* in the queue's region if the frames are lent, else in the buffer `to` */
	uint32_t len, wire_len;
	uint64_t ticks;  /* the device's stamp; 0: none */
};

/* How the device cuts a TCP frame. Its IPv4 checksum is 0, its TCP checksum the sum of the pseudo-header without the
 * length, as rte_net_intel_cksum_prepare() leaves them. */
struct sq_cut {
	uint16_t size;      /* payload octets of a piece; 0: the frame is not cut */
	uint8_t l2, l3, l4; /* lengths of the headers: Ethernet with tags, IP, TCP */
	uint8_t ipv6;
};

struct sq_tx;
struct sq_rx;

/* Where the slots of a transmit queue are: frame i starts at base + i * stride. */
struct sq_slots {
	uint8_t *base;
	uint64_t stride;
	uint32_t count;
};

/* Functions return 0 or a negated errno, unless stated otherwise; `log` then has the details. */
struct sq_api {
	uint32_t abi;
	const char *built_for; /* DPDK's version at build time */
	const char *running;   /* version of the loaded libraries */

	/* Whether `octets` of hugepages are available now: 1 or 0. */
	int (*hugepages_fit)(uint64_t octets);
	/* Starts the EAL, once per process. Leaves threads' CPUs and signal handlers as they were. */
	int (*start)(int argc, char **argv);
	/* Copies DPDK's log since the last call, as text with a final 0. */
	void (*log)(char *to, size_t room);

	/* Adds a device to `bus` ("vdev", "pci"). */
	int (*attach)(const char *bus, const char *name, const char *arguments, uint16_t *port);
	int (*describe)(uint16_t port, struct sq_device *);
	/* Configures and starts; `config` returns the values in effect. */
	int (*configure)(uint16_t port, struct sq_config *config);
	/* Sets a rule until the device is removed. With several queues, RSS spreads its frames. `why`: the driver's message
	 * after a refusal, as text with a final 0. */
	int (*steer)(uint16_t port, const struct sq_rule *, char *why, size_t room);
	int (*link)(uint16_t port, uint32_t *speed_mbps); /* 1 up, 0 down */
	int (*counters)(uint16_t port, struct sq_counters *);
	int (*read_clock)(uint16_t port, uint64_t *ticks);
	/* Stops, closes and removes a device; none of its queues may be in use. */
	int (*detach)(uint16_t port);

	/* `use`: bits of SQ_TX_LAUNCH, SQ_TX_TCP_CUT and SQ_COUNT_DOWN. */
	int (*tx_open)(uint16_t port, uint16_t queue, uint32_t max_frame, uint32_t use, struct sq_tx **, struct sq_slots *);
	/* Lends up to `want` adjacent slots; `first` is the number of the first one. */
	uint32_t (*tx_lend)(struct sq_tx *, uint32_t want, uint32_t *first);
	/* Sends the next `n` lent slots; `lengths` and `dues` (ns, for launch times) point to the first slot's values; the
	 * values for the other slots follow at distances of `step` octets. `cuts`: one for each frame, with SQ_TX_TCP_CUT.
	 * Returns the number taken, or SQ_TOO_LONG, SQ_TOO_SHORT or SQ_REFUSED: the first frame was dropped. */
	int (*tx_send)(struct sq_tx *, uint32_t n, const uint32_t *lengths, const uint64_t *dues, size_t step,
	               const struct sq_clock *, const struct sq_cut *cuts);
	/* Number of slots that the device still holds. */
	uint32_t (*tx_held)(struct sq_tx *);
	void (*tx_close)(struct sq_tx *);

	int (*rx_open)(uint16_t port, uint16_t queue, struct sq_rx **, struct sq_region *);
	/* Takes at most SQ_BATCH received frames, at most `room` octets (a multiple of 64) of each. Lends them until the next
	 * call (`lent`: 1), or copies them to `to`, each to a multiple of 64 octets (`lent`: 0). `now`: CLOCK_MONOTONIC just
	 * after the frames were taken. Returns the number of frames. */
	uint32_t (*rx_receive)(struct sq_rx *, uint8_t *to, uint32_t room, struct sq_frame *frames, uint64_t *now,
	                       uint32_t *lent);
	void (*rx_close)(struct sq_rx *);
};

/* The table, or NULL if `abi` is not this shim's. */
const struct sq_api *squall_dpdk_api(uint32_t abi);
/* The `abi` that squall_dpdk_api() accepts. */
uint32_t squall_dpdk_abi(void);

#endif
