"""English words that say how many, where, or who: what no dependency label tells."""

from __future__ import annotations


def word_set(text: str) -> frozenset[str]:
    """The words of a text with blanks between them."""
    return frozenset(text.split())


# Heads of "a ... of X" that count or gather X and are nothing apart from it. Vessels are not among them: in "a bowl of
# soup" there is a bowl.
QUANTIFIER_NOUNS = word_set(
    """
    abundance amount array assortment batch bit bunch chunk cluster collection couple crowd dozen duo flock group
    handful heap herd hundred kind line litter load lot majority mass million multitude number pack pair part
    piece pile plenty plethora portion pride quartet range row school selection sequence series set slab slice sort
    stack string swarm team thousand trio type variety
    """
)
# "a body of water" is water, and a body of anything else is a body.
MASS_PHRASES = frozenset({("body", "water")})

QUANTIFIERS = word_set(
    "all any both countless each every few half lots many most much multiple numerous plenty several some various"
)

# Nouns that with a preposition before and "of" behind make a preposition: "in front of", "on the other side of".
PLACE_NOUNS = word_set(
    """
    back base bottom center centre corner direction edge end front inside left middle midst opposite
    outside rear right side top
    """
)
# Those of them that are nothing to be seen when they stand alone: "with a cherry on top".
BARE_PLACES = word_set("center centre front left middle midst opposite rear right side top")
ABSTRACT_PHRASES = frozenset(
    tuple(phrase.split())
    for phrase in """
    as part of
    by means of
    for lack of
    in accordance with
    in addition to
    in back of
    in case of
    in charge of
    in comparison to
    in comparison with
    in connection with
    in contrast to
    in contrast with
    in favor of
    in lieu of
    in need of
    in place of
    in preparation for
    in proximity to
    in pursuit of
    in reference to
    in regard to
    in regards to
    in relation to
    in response to
    in search of
    in spite of
    in terms of
    in view of
    on account of
    on behalf of
    with reference to
    with regard to
    with regards to
    with respect to
    """.strip().splitlines()
)
# Adjectives and adverbs that with a preposition behind make a preposition: "next to", "full of".
RELATIONAL = word_set(
    """
    across adjacent ahead akin alongside apart away beneath close closer closest down far farther full inside level near
    nearer nearest next off opposite out outside parallel perpendicular similar together up
    """
)

# Stand for a noun rather than being one, though tagged as nouns.
NON_THINGS = word_set("another each one other others same such")
# Say which one it is, or how far it may, not what it is like.
NON_PROPERTIES = word_set(
    "able about another certain different else last latter much next other own same such sure unable"
)

COLOURS = word_set(
    """
    aqua beige black blond blonde blue bronze brown brunette burgundy camouflage charcoal copper cream crimson fuchsia
    gold golden gray green grey indigo ivory khaki lavender lime magenta maroon mauve navy olive orange peach pink
    purple red rust scarlet silver tan taupe teal turquoise violet white yellow
    """
)
# Before a colour they tell its shade: "a light blue shirt" is blue, and may be heavy.
SHADES = word_set("bright dark deep dull faded light neon pale royal sky vivid")

FEMALE = word_set(
    """
    actress aunt ballerina bride bridesmaid cheerleader cowgirl daughter female gal girl girlfriend grandma grandmother
    granddaughter lady mom mommy mother niece nun princess queen sister waitress wife woman
    """
)
MALE = word_set(
    """
    boy boyfriend brother cowboy dad daddy father gentleman grandfather grandpa grandson groom groomsman guy husband
    king male man nephew prince son uncle waiter
    """
)
# Ends of words that tell who it is: "fireman", "horsewoman".
FEMALE_ENDINGS = ("woman", "girl", "lady")
MALE_ENDINGS = ("man", "boy")
PERSONS = word_set(
    """
    actor adult artist athlete attendant audience baby backpacker baker band bartender batter bicyclist biker
    boarder boater bodybuilder boxer builder bystander camper catcher celebrity chef child class clown climber
    coach commuter conductor cook cop couple crew crowd customer cyclist dancer diver doctor driver drummer elder
    employee fan farmer firefighter fisher friend gentleman goalie golfer grandparent guard guest guitarist gymnast
    hiker human individual infant instructor jockey jogger juggler kayaker kid lifeguard member motorcyclist
    musician nurse officer official onlooker owner painter parent parishioner passenger patient pedestrian people
    performer person photographer pianist pilot pitcher player police politician preschooler professor racer referee
    rider rollerblader rower runner sailor scientist shopper singer skateboarder skater skier snowboarder soldier
    spectator student surfer swimmer tattooist teacher team teen teenager toddler tourist traveler umpire vendor
    violinist visitor wakeboarder walker worker wrestler youngster youth
    """
)
# Of these one says "it" as well.
YOUNG = word_set("baby child infant kid toddler")
ANIMALS = word_set(
    """
    alligator animal bear beagle bee bird bison boar bobcat buffalo bull bulldog bunny butterfly calf camel cat cattle
    cheetah chicken chihuahua collie cow crab creature crocodile crow dachshund dalmatian deer dog dolphin donkey dove
    dragonfly duck duckling eagle elephant elk ferret finch fish foal fox frog gazelle giraffe goat goose gorilla
    greyhound gull hamster hawk hen heron hippo hippopotamus horse hound husky insect kangaroo kitten kitty koala
    labrador lamb lion lizard llama mammal mare monkey moose mouse mule octopus ostrich otter owl ox panda parakeet
    parrot peacock pelican penguin pet pig pigeon pony poodle pug pup puppy rabbit ram rat retriever rhino
    rhinoceros rooster seagull seal shark sheep sheepdog shepherd snake spaniel sparrow spider squirrel stallion swan
    terrier tiger turkey turtle walrus whale wolf zebra
    """
)
