package store_test

import (
	"context"
	"time"

	"github.com/holdfast-dev/holdfast/internal/access/iamtest"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/testkit"
	"github.com/holdfast-dev/holdfast/internal/vuln"
	"github.com/holdfast-dev/holdfast/internal/vuln/vulntest"
)

// actsOnAdvisories returns calls of the methods that write advisories and feeds.
func (st stage) actsOnAdvisories() map[string]act {
	none, f := st.org.UID.NewChild(), vulntest.NewFeed(st.org.UID, "new")
	insert := func(id string) func(context.Context) error {
		return func(ctx context.Context) error {
			_, err := st.InsertAdvisory(ctx, st.org.UID, vulntest.NewAdvisory(id))
			return err
		}
	}
	update := func(uid resource.UID) func(context.Context) error {
		return func(ctx context.Context) error {
			_, err := st.UpdateAdvisory(ctx, uid, func(a *vuln.Advisory) error {
				a.ArtifactName, a.Aliases = "other", nil
				return nil
			})
			return err
		}
	}
	updateFeed := func(uid resource.UID) func(context.Context) error {
		return func(ctx context.Context) error {
			_, err := store.Edit(ctx, uid, st.Feed, st.UpdateFeed, func(f *vuln.AdvisoryFeed) error {
				f.Name = "other"
				return nil
			})
			return err
		}
	}
	return map[string]act{
		"InsertAdvisory": {insert("A-2"), insert("A-1")},
		"UpdateAdvisory": {update(st.adv.UID), update(none)},
		"DeleteAdvisory": {
			func(ctx context.Context) error { return st.DeleteAdvisory(ctx, st.adv.UID) },
			func(ctx context.Context) error { return st.DeleteAdvisory(ctx, none) },
		},
		"ImportAdvisories": {func(ctx context.Context) error {
			changed := vulntest.NewAdvisory("A-1")
			changed.Source.Digest = []byte("2")
			_, err := st.ImportAdvisories(ctx, st.org.UID, "test", []vuln.Advisory{changed, vulntest.NewAdvisory("A-3")})
			return err
		}, func(ctx context.Context) error {
			_, err := st.ImportAdvisories(ctx, none, "test", []vuln.Advisory{vulntest.NewAdvisory("A-3")})
			return err
		}},
		"ReplaceExploits": {
			func(ctx context.Context) error {
				return st.replace(ctx, st.org.UID, iamtest.Epoch.Add(time.Hour), vulntest.NewScore(1, 5))
			},
			func(ctx context.Context) error { return st.replace(ctx, none, iamtest.Epoch, vulntest.NewScore(1, 5)) },
		},
		"DeleteExploitList": {
			func(ctx context.Context) error { return st.DeleteExploitList(ctx, st.org.UID, vuln.EPSS) },
			func(ctx context.Context) error { return st.DeleteExploitList(ctx, none, vuln.EPSS) },
		},
		"InsertFeed": {
			func(ctx context.Context) error { return st.InsertFeed(ctx, f) },
			func(ctx context.Context) error { return st.InsertFeed(ctx, vulntest.NewFeed(st.org.UID, "feed")) },
		},
		"UpdateFeed": {updateFeed(st.feed.UID), updateFeed(none)},
		"DeleteFeed": {
			func(ctx context.Context) error { return st.DeleteFeed(ctx, st.feed.UID) },
			func(ctx context.Context) error { return st.DeleteFeed(ctx, none) },
		},
		"SetFeedDue": {func(ctx context.Context) error {
			return st.SetFeedDue(ctx, st.feed.UID, iamtest.Epoch.Add(-time.Hour))
		}, nil},
		"ClaimDueFeed": {func(ctx context.Context) error {
			_, _, err := st.ClaimDueFeed(ctx, time.Now().Add(time.Hour), "", nil)
			return err
		}, nil},
	}
}

func (st stage) replace(ctx context.Context, group resource.UID, at time.Time, all ...vuln.Exploit) error {
	_, err := vulntest.ReplaceExploits(ctx, st.AdvisoryStore, group, at, all...)
	return err
}

// actsOnFindings returns calls of the methods that write exceptions, rules and inventories.
func (st stage) actsOnFindings() map[string]act {
	none := st.org.UID.NewChild()
	e, r := vulntest.NewException(st.org.UID, st.repo.UID), vulntest.NewPullRule(st.org.UID)
	place, entries := vulntest.NewPlace(st.FindingStore, st.org.UID, "new", 2)
	return map[string]act{
		"InsertExceptions": {
			func(ctx context.Context) error {
				return st.InsertExceptions(ctx, st.org.UID, []vuln.Exception{e})
			},
			func(ctx context.Context) error {
				return st.InsertExceptions(ctx, st.org.UID, []vuln.Exception{vulntest.NewException(st.org.UID, none)})
			},
		},
		"ApproveException": {
			func(ctx context.Context) error {
				_, err := st.ApproveException(ctx, st.exception.UID, iamtest.Alice)
				return err
			},
			func(ctx context.Context) error { _, err := st.ApproveException(ctx, none, iamtest.Alice); return err },
		},
		"DeleteException": {
			func(ctx context.Context) error { return st.DeleteException(ctx, st.exception.UID, iamtest.Alice) },
			func(ctx context.Context) error { return st.DeleteException(ctx, none, iamtest.Alice) },
		},
		"InsertPullRule": {
			func(ctx context.Context) error { return st.InsertPullRule(ctx, r) },
			func(ctx context.Context) error { return st.InsertPullRule(ctx, vulntest.NewPullRule(none)) },
		},
		"UpdatePullRule": {
			func(ctx context.Context) error {
				_, err := store.Edit(ctx, st.rule.UID, st.PullRule, st.UpdatePullRule, func(r *vuln.PullRule) error {
					r.Fixable = true
					return nil
				})
				return err
			},
			func(ctx context.Context) error {
				_, err := store.Edit(ctx, st.rule.UID, st.PullRule, st.UpdatePullRule, func(r *vuln.PullRule) error {
					r.Target = none
					return nil
				})
				return err
			},
		},
		"DeletePullRule": {
			func(ctx context.Context) error { return st.DeletePullRule(ctx, st.rule.UID) },
			func(ctx context.Context) error { return st.DeletePullRule(ctx, none) },
		},
		"AddReportSubscription": {
			func(ctx context.Context) error {
				return testkit.Ignore(st.AddReportSubscription(ctx, vuln.ReportSubscription{
					Group: st.org.UID, Identity: iamtest.Bob}))
			},
			func(ctx context.Context) error {
				return testkit.Ignore(st.AddReportSubscription(ctx, vuln.ReportSubscription{Group: none, Identity: iamtest.Bob}))
			},
		},
		"DeleteReportSubscription": {
			func(ctx context.Context) error { return st.DeleteReportSubscription(ctx, st.reader, st.org.UID) },
			func(ctx context.Context) error { return st.DeleteReportSubscription(ctx, st.reader, none) },
		},
		"SetSLA": {
			func(ctx context.Context) error {
				return testkit.Ignore(st.SetSLA(ctx, vuln.SLA{UID: st.org.UID, Critical: 8}))
			},
			func(ctx context.Context) error {
				return testkit.Ignore(st.SetSLA(ctx, vuln.SLA{UID: none, Critical: 8}))
			},
		},
		"DeleteSLA": {
			func(ctx context.Context) error { return st.DeleteSLA(ctx, st.org.UID) },
			func(ctx context.Context) error { return st.DeleteSLA(ctx, none) },
		},
		"ReplaceInventory": {
			func(ctx context.Context) error { return st.ReplaceInventory(ctx, place, entries) },
			func(ctx context.Context) error {
				return st.ReplaceInventory(ctx, vuln.InventoryPlace{Group: none, Name: "new"}, nil)
			},
		},
		"DeleteInventory": {
			func(ctx context.Context) error { return st.DeleteInventory(ctx, st.org.UID, "cluster", iamtest.Alice) },
			func(ctx context.Context) error { return st.DeleteInventory(ctx, st.org.UID, "none", iamtest.Alice) },
		},
	}
}
