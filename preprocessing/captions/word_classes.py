"""Which words of captions mean the same, or one a kind of the other: what WordNet's synsets and hypernyms would say."""

from __future__ import annotations

# A line holds words for the same thing. What stands indented below it is a kind of it. A word may stand in several
# places, one for each of its senses.
_CLASSES = """
person people human individual somebody someone figure passerby pedestrian bystander
  man guy gentleman dude fellow male bloke
    groom
    businessman
    cowboy
    fisherman
    fireman firefighter
    policeman
    father dad daddy
  woman lady female gal
    bride
    mother mom mommy mum
    ballerina
  adult grownup grown-up
    parent
      father dad daddy
      mother mom mommy mum
    man guy gentleman dude bloke
    woman lady gal
  child kid youngster youth tot
    boy
    girl
    toddler
    baby infant newborn
    schoolchild
    teenager teen adolescent
  teenager teen adolescent youth
  girl
  boy
  cyclist bicyclist biker
  biker motorcyclist
  rider
    cyclist bicyclist biker
    motorcyclist
    jockey
    horseman
    snowboarder
    skateboarder
    surfer
    cowboy
  skater
    skateboarder
    rollerblader
  skier
  boarder
    snowboarder
    skateboarder
    surfer
  kayaker canoeist
  rower
  climber
  hiker
  walker
  swimmer
  diver
  driver
    racer
  racer
  runner jogger
  dancer
    ballerina
  singer
  musician
    guitarist
    drummer
    singer
  performer entertainer
    dancer
    singer
    musician
    acrobat
    clown
    juggler
  athlete sportsman sportsperson
    player
      footballer
      goalie goalkeeper
      batter
      pitcher
      catcher
      quarterback
    runner jogger
    gymnast
    wrestler
    boxer
    swimmer
    skier
    surfer
    snowboarder
    cyclist
  teammate
  cheerleader
  referee umpire
  worker
    waiter
    waitress
    chef cook
    farmer
    construction-worker
    fireman firefighter
    officer cop policeman policewoman
  officer cop
    policeman
    policewoman
  soldier
  photographer cameraman
  spectator onlooker fan viewer
  audience
  student
  owner
  vendor seller
  friend buddy
crowd group audience mob throng gathering
  band
  team squad
  family
  couple pair
  flock
  herd
  bunch cluster
animal creature beast
  pet
    dog
    cat
  dog canine doggy doggie hound pooch mutt
    puppy pup
    poodle
    terrier
    retriever
    greyhound
    collie
    shepherd
    labrador lab
    dalmatian
    boxer
    bulldog
    dachshund
    beagle
    husky
    spaniel
    rottweiler
  cat feline kitty
    kitten
  horse
    pony
    foal
    stallion
    mare
    bronco
    zebra
  cow cattle
    bull ox steer
    calf
  bull
  sheep
    lamb
    ram
  goat
    ram
  pig hog
  bear
    panda
    polar-bear
  elephant
  giraffe
  zebra
  deer
  camel
  monkey ape
  rabbit bunny
  squirrel
  bird fowl
    duck
    goose
    swan
    pigeon dove
    seagull gull
    parrot
    chicken hen rooster
    eagle
    owl
    crane
    flamingo
    pelican
  fish
    shark
    goldfish
  whale
  dolphin
  insect bug
    butterfly
    bee
  turtle
vehicle
  car automobile auto
    taxi cab
    sedan
    suv
    jeep
    limousine
    minivan
  jeep suv
  truck lorry
    pickup
    semi
    trailer
  van
    minivan
  bus coach
  train
    locomotive engine
    subway
    tram trolley streetcar
  motorcycle motorbike bike
    scooter moped
    dirtbike
  bicycle bike cycle
    tricycle
    unicycle
    tandem
  atv quad four-wheeler wheeler
  tractor
  cart buggy wagon carriage
  tank
  boat ship vessel watercraft
    canoe
      kayak
    raft
    rowboat
    sailboat yacht
    ferry
    motorboat speedboat
    kayak
    gondola
  airplane plane aircraft aeroplane jet
    biplane
  helicopter
  sled sledge sleigh toboggan
  snowmobile
  wheelchair
  stroller pram carriage
  skateboard
  scooter
clothing clothes garment apparel attire wear garb
  costume outfit
    uniform
  shirt top
    t-shirt tee tshirt tee-shirt
    blouse
    polo
    jersey
    tank-top
  sweater jumper pullover
    sweatshirt
      hoodie
    cardigan
  sweatshirt hoodie
  coat jacket
    parka
    blazer
    raincoat
    windbreaker
  vest
    life-vest lifejacket
  pants trousers slacks
    jeans denim
    leggings
    khaki khakis
    shorts trunk trunks
  overall overalls
  shorts
  skirt
    kilt
    tutu
  dress gown
    sundress
    wedding-gown
  robe gown bathrobe
  suit
    tuxedo
    wetsuit
    swimsuit
  swimsuit swimwear bathing-suit
    bikini
    trunk trunks
  underwear
  bra
  apron
  poncho
  cape cloak
  scarf shawl
    bandana bandanna
    headscarf
  tie necktie
  bowtie
  belt
  glove mitten
  sock stocking
  shoe footwear
    sneaker trainer
    boot
    sandal
      flip-flop
    heel
    slipper
  boot
  hat headgear
    cap
      beanie
    helmet
    beanie
    sombrero
    visor
    crown
  headband
    bandana bandanna
  helmet
  glasses eyeglasses spectacles
    sunglasses shades
    goggles
  mask
  necklace jewelry
  bracelet jewelry
  earring jewelry
  harness
  lei
water
  ocean sea
  lake
    pond
  pond pool
  river
    creek stream brook
  stream
    river
    creek
    brook
  creek river
  puddle
  wave surf
  rapid rapids
    whitewater
  waterfall fall falls
  pool
    swimming-pool
  fountain
  splash spray
shore beach coast seashore shoreline waterfront seaside
  beach sand
grass lawn turf
land ground earth terrain
  dirt soil mud
  sand
    dune
  floor
  field
    meadow
    pasture
    pitch
mountain mount peak
  cliff
  ridge
hill
  hillside
  dune
  slope
  mound
cliff bluff
  ledge
slope hillside mountainside incline
rock stone boulder
  pebble
  rock-formation
snow
  snowball
  snowbank
ice
forest wood woods woodland jungle
tree
  palm
  pine
plant
  tree
  flower blossom
    rose
    tulip
    sunflower
  bush shrub hedge
  grass
  cactus
  leaf foliage
branch stick twig limb
  log
stick pole rod
  pole post
pole post
  flagpole
log wood timber
path trail pathway track walkway
  sidewalk pavement walkway
street road roadway
  highway freeway
  alley
  lane
  crosswalk
  intersection
pavement concrete asphalt sidewalk
track racetrack
  course
  rail railway railroad
course
building structure edifice
  house home cabin cottage
  home
  church cathedral
  temple
  barn
  tower
  skyscraper
  store shop market
    supermarket
    bakery
  restaurant cafe diner
    bar pub
  school
  stadium arena
  gym gymnasium
  hotel
  station
  library
  garage
  shed
  museum
structure
  bridge
  dock pier
  tower
  fountain
  statue
dock pier wharf jetty
bridge
store shop
city town downtown
  village
yard backyard
  lawn
park playground
garden
room
  kitchen
  bedroom
  bathroom restroom
  living-room
  classroom
  office
  hallway corridor
furniture
  chair seat
    armchair
    recliner
    stool
    wheelchair
  couch sofa
  bench seat
  table
    desk
    counter
  bed
    crib
    bunk
  shelf
    bookshelf
  cabinet cupboard
  dresser
seat chair bench stool
bed mattress
blanket quilt
towel cloth
rug carpet mat
cloth fabric
  blanket
  towel
  sheet
wall
fence barrier railing
  gate
barrier obstacle
  hurdle
obstacle hurdle
rail railing handrail banister
bar rail pole
stair step staircase stairway stairs steps
step ledge
ramp
  halfpipe half-pipe pipe
door doorway entrance
  gate
window
platform stage
  podium
container
  box carton crate
  basket bin
  bucket pail
  bottle
  cup mug
  glass cup
  can
  bowl
  jar
  vase
  trash-can
bag sack pouch
  purse handbag
  backpack rucksack knapsack
  luggage suitcase
luggage suitcase baggage
toy plaything
  doll
  teddy
  frisbee disc disk
  balloon
  kite
  ball
frisbee disc disk
ball
  baseball
  basketball
  football
  soccer-ball
  volleyball
  softball
game sport
  soccer football
  football rugby
  baseball
  softball
  basketball
  volleyball
  tennis
  hockey
  cricket
  lacrosse
  golf
  chess
  match
match game
  race
race
  marathon
competition contest match event tournament
  race
trick stunt
  jump leap
  flip somersault
  handstand
  wheelie
jump leap
racket racquet paddle
bat
paddle oar
board
  surfboard
  snowboard
  skateboard
  wakeboard
  bodyboard
surfboard
ski skis
skate
  rollerblade rollerblades
  ice-skate
raft innertube tube
  innertube
equipment gear
instrument
  guitar
  drum
  piano keyboard
  violin fiddle
  trumpet
  saxophone
  flute
  cello
  accordion
  tuba
  trombone
device
  camera camcorder
  phone
  computer
  television
phone telephone cellphone cell-phone smartphone mobile
computer laptop
television tv
microphone mic
picture photo photograph image
  painting
  portrait
  drawing
painting mural
  graffiti
art artwork
  painting
  sculpture
  statue
sculpture statue
  snowman
sign signpost
  billboard
  banner
flag banner pennant
paper
  newspaper
  book
  magazine
  letter
rope cord line string
  leash lead
leash lead chain
hose pipe
tube pipe
weapon
  gun rifle pistol
  sword
  knife
food meal snack dish
  fruit
    apple
    banana
    orange
    strawberry
    lemon
    grape
  vegetable
    carrot
    broccoli
    tomato
    lettuce
    potato
    onion
  sandwich
    burger hamburger
    hotdog
  pizza
  pasta noodle spaghetti
  bread
    bagel
    toast
    bun
  meat
    chicken
    steak
    ham
    sausage
  cake
    cupcake
    pastry
  dessert
    cake
    pie
    ice-cream
    donut doughnut
  donut doughnut
  candy
    lollipop
  cookie
  soup
  salad
  rice
  cheese
  egg
  breakfast
  lunch
  dinner
drink beverage
  beer
  wine
  coffee
  tea
  juice
  soda
  milk
  cocktail
cigarette cigar
light lamp lantern
  headlight
fire flame
  campfire bonfire
smoke steam
body
  torso chest
  back
face
hand fist
  palm
arm limb
leg limb
foot
  paw
mouth
hair
  beard
  mustache
  ponytail
  mohawk
  afro
fur coat
tail
sky air
  cloud
sunset sundown dusk
sun sunlight sunshine
air midair
area place spot region
place location
side edge
edge rim brim
background backdrop
front
celebration party
  wedding
  festival carnival
parade procession
concert performance show
tool
  hammer
  shovel
  broom
  rake
  wrench
plate dish
utensil silverware cutlery
  fork
  spoon
  knife
appliance
  oven
  stove oven
  refrigerator fridge
  microwave
  toaster
sink basin
toilet
tub bathtub
umbrella parasol
little small tiny
big large huge giant enormous gigantic massive
  giant
tall high
young youthful
  newborn
  teenage teen
old elderly older aged ancient
gray grey
tan beige khaki brown
  golden
blond blonde
  golden
gold golden
yellow golden
red maroon crimson scarlet
purple violet lavender
pink magenta
blue navy turquoise teal
black dark
dark dim
bright brightly-colored vivid light
  sunny
colorful colourful multicolored multi-colored bright
silver metallic metal
  steel
wooden wood
snowy snow-covered snow
icy frozen
sandy
rocky stony stone rugged
muddy dirty
  dusty
dirty filthy
wet soaked damp
dry arid barren
sunny bright
cloudy overcast
crowded busy packed
empty vacant deserted
happy smiling cheerful joyful
smiling laughing
beautiful pretty lovely gorgeous attractive
cute adorable
funny silly
strange odd weird unusual
  funny
hairy furry shaggy fluffy
  fuzzy
furry fluffy
striped stripy
plaid checkered
topless shirtless bare bare-chested
naked nude
barefoot barefooted
bald shaven shaved
curly wavy
fat overweight heavy obese
thin skinny slim slender
strong muscular
asian oriental
  chinese
  japanese
  korean
african-american black
several many multiple various numerous
many lots
lone single solitary alone
various different diverse
similar same identical matching
fast quick speedy
messy cluttered
closed shut
outdoor outside
indoor inside
parked stationary
forested wooded
calm still peaceful
urban
rural
fancy elaborate ornate decorative formal
square rectangular
round circular
run sprint jog race
  gallop
walk stroll
  hike
  march
jump leap hop
  dive
look watch gaze stare observe view
  peer
hold carry grip grasp
  carry
carry bring
catch grab
throw toss
  pitch
hit strike
  kick
  punch
ride
  drive
  cycle
climb scale ascend
sit
  perch
stand
lie lay recline rest
  sleep
sleep nap
eat chew bite
  chew
chew bite gnaw
drink sip
talk speak chat
smile grin
  laugh
play
pull drag tug
  tow
push shove
chase pursue follow
follow trail
swim
  dive
wear dress
  dress
surround encircle
cover
fall drop
slide glide
  sled
lean rest
cross traverse
make do create
perform do
look stare
hug embrace
kiss
wrestle fight
pose
point gesture
wave
fly soar
  glide
hang dangle
have own
  hold
ski
  snowboard
"""


def _ancestries() -> dict[str, list[tuple[int, ...]]]:
    """For each word its senses: the numbers of the lines above its line, from the top, and of the line itself."""
    senses: dict[str, list[tuple[int, ...]]] = {}
    above: list[int] = []
    for number, line in enumerate(_CLASSES.splitlines()):
        depth = (len(line) - len(line.lstrip())) // 2
        above = [*above[:depth], number]
        for word in line.split():
            senses.setdefault(word, []).append(tuple(above))
    return senses


_SENSES = _ancestries()


def same_or_kind_of(one: str, other: str) -> bool:
    """Whether the words mean the same in one of their senses, or one is a kind of the other, at whatever distance.

    Words that the table lacks are related to themselves alone.
    """
    return one == other or any(
        a[: len(b)] == b or b[: len(a)] == a for a in _SENSES.get(one, ()) for b in _SENSES.get(other, ())
    )
