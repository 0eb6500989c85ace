package e2e_test

import (
	"encoding/json"
	"testing"
)

// subscribe creates a subscription whose sink does not exist, and returns its UID.
func (w *world) subscribe(t *testing.T, group string) string {
	t.Helper()
	r := w.send(t, w.Token, "POST", "/events/v2beta1/subscriptions/"+group, `{"sink":"http://127.0.0.1:9/sink"}`)
	var made struct{ UID string }
	if err := json.Unmarshal([]byte(r.body), &made); err != nil || made.UID == "" {
		t.Fatalf("subscribe: %s", r.body)
	}
	return made.UID
}

// eventExamples returns example calls for subscriptions, the audit log and budgets.
func eventExamples(t *testing.T, w *world, x things) map[string][]example {
	t.Helper()
	group := w.child(t, x.org, "subscribed")
	one, two, three := w.subscribe(t, group), w.subscribe(t, group), w.subscribe(t, group)
	nothing := x.org + "/0123456789abcdef"
	list := []example{
		{},
		{query: "page_size=2&uidp.descendants_of=" + x.org + "&order_by=create_time%20desc"},
		{query: "page_size=-1", fails: true},
	}
	return map[string][]example{
		"BudgetsService_GetBudget":   {{uid: group}, {uid: nothing, fails: true}, {uid: "nonsense", fails: true}},
		"BudgetsService_ListBudgets": append(list, example{all: true}),
		"BudgetsService_UpdateBudget": {
			{uid: group, body: `{"repos":"5","storedBytes":"50000000000","requestsPerSecond":20}`},
			{uid: group, query: "validate_only=true", body: `{"webhooks":3}`},
			{uid: group, query: "update_mask=repos", body: `{}`},
			{uid: group, body: `{"repos":-1}`, fails: true},
			{uid: x.org, body: `{"repos":5}`, fails: true},
		},
		"BudgetsService_DeleteBudget": {{uid: group}, {uid: x.org, fails: true}},

		"SubscriptionsService_GetSubscription": {{uid: one}, {uid: nothing, fails: true}, {uid: "nonsense", fails: true}},
		"SubscriptionsService_CreateSubscription": {
			{uid: group, body: `{"sink":"https://sink.example/x"}`},
			{uid: group, query: "validate_only=true", body: `{"sink":"https://sink.example/x"}`},
			{uid: group, body: `{"sink":"http://sink.example/x"}`, fails: true},
			{uid: nothing, body: `{"sink":"https://sink.example/x"}`, fails: true},
		},
		"SubscriptionsService_ListSubscriptions":  append(list, example{all: true}),
		"SubscriptionsService_DeleteSubscription": {{uid: two}, {uid: two, fails: true}},

		"V1_Subscriptions_Create": {
			{uid: group, body: `{"sink":"https://sink.example/x"}`}, {uid: group, body: `{"sink":""}`, fails: true},
		},
		"V1_Subscriptions_List":   {{}, {query: "id=" + one}, {query: "uidp.children_of=x", fails: true}},
		"V1_Subscriptions_Delete": {{uid: three}, {uid: three, fails: true}},

		"DeliveriesService_GetDelivery":      {{uid: one + "/0123456789abcdef", fails: true}},
		"DeliveriesService_ListDeliveries":   append(list, example{all: true}),
		"DeliveriesService_ReplayDeliveries": {{uid: one, body: `{}`}, {uid: nothing, body: `{}`, fails: true}},
		"DeliveriesService_TestSubscription": {{uid: one, body: `{}`}, {uid: nothing, body: `{}`, fails: true}},
		"DeliveriesService_ListAttempts":     {{uid: one}, {uid: nothing, fails: true}},
		"AuditService_WatchEntries": {
			{}, {query: "group_uid=" + group + "&type=iam.group"}, {query: "position=x", fails: true},
		},
		"AuditService_ListEntries": {
			{},
			{
				query: "group_uid=" + group + "&type=iam.group&since=2026-01-02T03:04:05Z&until=2036-01-02T03:04:05Z&" +
					"page_size=3&skip=0&order_by=time%20desc",
			},
			{query: "subject=" + group + "&identity_uid=" + string(w.Owner)},
			{query: "since=yesterday", fails: true},
			{query: "group_uid=x", fails: true},
		},
	}
}
