package guard

import (
	"context"
	"fmt"
	"strings"

	"tidegate/pkg/fault"
	"tidegate/pkg/redis"
)

// maxOfPerson bounds the values that are kept of one person; what comes on top is
// fetched each time.
const maxOfPerson = 256

// OfPerson makes the key of a value that concerns one person, so that Erase finds
// it. It comes before Variant.
func OfPerson(person, key string) string {
	return strings.ReplaceAll(person, personEnd, "\x01") + personEnd + key
}

const personEnd = "\x02"

// personOf is the digest of whom a personal key names with OfPerson; "" for a key
// that names nobody.
func (s *store) personOf(key string) string {
	person, _, named := strings.Cut(key, personEnd)
	if !named {
		return ""
	}
	return s.digest("person\x00" + person)
}

// Erase removes every personal value whose key names the person (OfPerson): no
// value that was fetched before this call is given to a caller that comes after it,
// and none stays in Redis. It gives how many places it emptied. If Redis does not
// answer, only this node has forgotten, and the error, of kind Unavailable, says
// so: call it again. A node that goes on alone meanwhile, because Redis does not
// answer there, may use what it has for its life.
func (g *Guard) Erase(ctx context.Context, person string) (places int, err error) {
	if g.box == nil {
		return 0, nil // nothing personal is kept
	}
	const all = "" // of the person
	digest := g.store.personOf(OfPerson(person, all))
	g.voidPerson(digest)
	if g.store.redis == nil {
		return 0, nil
	}
	op := "erase a person's values of " + g.cfg.Backend
	if g.away.open() {
		g.soon(g.kick) // it is the flush that tries Redis
		return 0, fault.New(fault.Unavailable, op, "redis does not answer: what is kept there may be used until it ends; try again")
	}
	found, err := g.store.erased(ctx, digest)
	g.asked(ctx, err)
	for _, p := range found {
		if err != nil {
			break
		}
		_, err = g.store.invalidate(ctx, p, 0)
		g.asked(ctx, err)
	}
	if err != nil {
		return 0, fault.Wrap(fault.Unavailable, op, err)
	}
	return len(found), nil
}

// voidPerson is void for everything of a person (place.person).
func (g *Guard) voidPerson(who string) {
	g.voids.Add(1)
	g.mu.Lock()
	for _, f := range g.flights {
		if f.place.person == who {
			f.voided++
		}
	}
	g.mu.Unlock()
	g.local.dropPerson(who)
}

// What Redis knows of persons lies in one slot, with the beat, so that one clock
// decides:
//
//	KEYS[1] sorted set, the places of one person by the end of what may be there
//	KEYS[2] sorted set, persons by when they were last erased
//
// A place is written down before a fetch for it begins, or, where the fetch was
// made without asking Redis, before its value is published, with a time before the
// fetch: so an erasure either finds the place, and the fence of the invalidation
// refuses the value, or it was before the fetch.

// keep: ARGV 2 place, 3 the time before the fetch or ” if it has not begun, 4 µs
// that the place may be in use, 5 how many a person may have, 6 person.
// Result: 1, 0 if the person was erased after the fetch began, or -1 if the person
// has too many.
const keepText = begin + `
if ARGV[3] ~= '' then
  local erased = redis.call('ZSCORE', KEYS[2], ARGV[6])
  if erased and tonumber(ARGV[3]) <= tonumber(erased) then return 0 end
end
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', text(now))
if not redis.call('ZSCORE', KEYS[1], ARGV[2]) and redis.call('ZCARD', KEYS[1]) >= tonumber(ARGV[5]) then return -1 end
redis.call('ZADD', KEYS[1], text(now + ARGV[4]), ARGV[2])
redis.call('PEXPIRE', KEYS[1], text(math.ceil(ARGV[4] / 1000)))
return 1`

// erase: ARGV 2 person, 3 µs that the erasure is remembered: longer than a fetch
// and the wait for its publication. Result: the person's places. They stay written
// down until they end, since something may be fetched for them just now.
const eraseText = begin + `
redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', text(now - ARGV[3]))
redis.call('ZADD', KEYS[2], text(now), ARGV[2])
redis.call('PEXPIRE', KEYS[2], text(math.ceil(ARGV[3] / 1000)))
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', text(now))
return redis.call('ZRANGE', KEYS[1], 0, -1)`

func (s *store) personKeys(digest string) []string {
	return []string{redis.Tag(s.tag(), "person", digest), redis.Tag(s.tag(), "erased")}
}

// kept are the answers of keepPlace.
type kept int64

const (
	keptFull   kept = -1
	keptErased kept = 0
)

// keepPlace writes down that a person's value may come to lie in a place. before
// is a time before its fetch, 0 if that has not begun.
func (s *store) keepPlace(ctx context.Context, p place, before int64) (kept, error) {
	since := ""
	if before != 0 {
		since = fmt.Sprint(before)
	}
	v, err := s.run(ctx, s.scripts.keep, s.personKeys(p.person), s.now(), p.id(), since, s.personLife(), maxOfPerson, p.person)
	if err != nil {
		return 0, fmt.Errorf("write a person's place of %s down: %w", s.backend, err)
	}
	n, ok := v.(int64)
	if !ok {
		return 0, unexpected("keep", v)
	}
	return kept(n), nil
}

// personLife is how long, in µs, a place may be in use: a fetch and what its value
// lives.
func (s *store) personLife() int64 { return (s.cfg.TokenTimeout + s.cfg.keep()).Microseconds() }

// erased notes an erasure and gives the places that the person has.
func (s *store) erased(ctx context.Context, digest string) ([]place, error) {
	v, err := s.run(ctx, s.scripts.erase, s.personKeys(digest), s.now(), digest, s.personLife())
	if err != nil {
		return nil, fmt.Errorf("find a person's places of %s: %w", s.backend, err)
	}
	list, ok := v.([]any)
	if !ok {
		return nil, unexpected("erase", v)
	}
	places := make([]place, 0, len(list))
	for _, e := range list {
		resource, variant, _ := strings.Cut(str(e), "/")
		places = append(places, place{resource: resource, variant: variant, personal: true, person: digest})
	}
	return places, nil
}
