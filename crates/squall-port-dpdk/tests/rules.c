/* A driver that takes all rules and prints them, for LD_PRELOAD: no virtual device has rules on every kernel. Octets of
 * headers that are not compared are left out. */
#include <stdio.h>

#include <rte_flow.h>

static void print(const char *name, const void *spec, const void *mask, size_t octets)
{
	printf(" %s", name);
	for (size_t i = 0; spec != NULL && i < octets; i++) {
		unsigned int compared = ((const unsigned char *)mask)[i];

		if (compared != 0)
			printf(" %zu:%02x&%02x", i, ((const unsigned char *)spec)[i], compared);
	}
}

int rte_flow_isolate(uint16_t port, int set, struct rte_flow_error *error)
{
	(void)port;
	(void)error;
	printf("isolate %d\n", set);
	return 0;
}

int rte_flow_validate(uint16_t port, const struct rte_flow_attr *attr, const struct rte_flow_item *item,
                      const struct rte_flow_action *action, struct rte_flow_error *error)
{
	(void)port;
	(void)attr;
	(void)item;
	(void)action;
	(void)error;
	return 0;
}

struct rte_flow *rte_flow_create(uint16_t port, const struct rte_flow_attr *attr, const struct rte_flow_item *item,
                                 const struct rte_flow_action *action, struct rte_flow_error *error)
{
	static char rule;

	(void)port;
	(void)error;
	printf(attr->ingress ? "rule" : "no rule");
	for (; item->type != RTE_FLOW_ITEM_TYPE_END; item++) {
		if (item->type == RTE_FLOW_ITEM_TYPE_ETH)
			print("eth", item->spec, item->mask, sizeof(struct rte_ether_hdr));
		else if (item->type == RTE_FLOW_ITEM_TYPE_IPV4)
			print("ipv4", item->spec, item->mask, sizeof(struct rte_ipv4_hdr));
		else if (item->type == RTE_FLOW_ITEM_TYPE_IPV6)
			print("ipv6", item->spec, item->mask, sizeof(struct rte_ipv6_hdr));
		else if (item->type == RTE_FLOW_ITEM_TYPE_TCP)
			print("tcp", item->spec, item->mask, sizeof(struct rte_tcp_hdr));
		else if (item->type == RTE_FLOW_ITEM_TYPE_UDP)
			print("udp", item->spec, item->mask, sizeof(struct rte_udp_hdr));
	}
	for (; action->type != RTE_FLOW_ACTION_TYPE_END; action++) {
		if (action->type == RTE_FLOW_ACTION_TYPE_QUEUE)
			printf(" -> %u", ((const struct rte_flow_action_queue *)action->conf)->index);
		if (action->type == RTE_FLOW_ACTION_TYPE_RSS) {
			const struct rte_flow_action_rss *rss = action->conf;

			printf(" -> rss");
			for (uint32_t i = 0; i < rss->queue_num; i++)
				printf(" %u", rss->queue[i]);
		}
	}
	printf("\n");
	fflush(stdout);
	return (struct rte_flow *)(void *)&rule;
}

int rte_flow_flush(uint16_t port, struct rte_flow_error *error)
{
	(void)port;
	(void)error;
	printf("flush\n");
	fflush(stdout);
	return 0;
}
